"""Verdicts that follow from right and wrong answers: the lessons of `student_judge`, made once for the shipped adapter.

python -m research.lessons.verdicts
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

ASSETS = Path(__file__).parents[2] / "components" / "captions" / "students" / "assets"
COLUMNS = ("task", "caption", "other_caption", "paraphrase", "negation", "difference", "answer")

Row = Mapping[str, str]
Draft = tuple[str, Mapping[str, str], str]
"""A task, its inputs and the answer."""

_JOINTS = re.compile(
    r"[;,]| (?:while|whereas|rather than|instead of|as opposed to|versus|against|compared|not|where)\b"
)
_CODES = re.compile(
    r"\b(?:IMG \d+|photo-\d+\.png|picture \d+:|ref \w+|stock (?:photo \w+|vector:?)|set with|print \w+|free download)"
    r"|BUY NOW!!|\[\w+\]|#\w+|\.(?:jpg|png)|\(clipart\)|@ best price|\b(?:background|backdrop|bg|wallpaper)\b"
)
_EDGES = re.compile(r"\s*(?:>>|[|/;:,@()&]|(?<!\w)-(?!\w))\s*")


def from_paraphrases(rows: Sequence[Row]) -> Iterator[Draft]:
    """Verdicts on a set of captions, plain sentences (x') and paraphrases of these (x'').

    A caption's own x'' keeps its meaning and contradicts nothing; for every other caption, the judge also sees the
    paraphrase of the most similar caption.
    """
    said = [_words(row["paraphrase_1"]) for row in rows]
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, words in enumerate(said):
        for word in words:
            places[word].append(place)
    for place, row in enumerate(rows):
        caption = row["caption"]
        yield "judge_paraphrase", {"caption": caption, "paraphrase": row["paraphrase_2"]}, "Yes"
        true = row["paraphrase_2" if place % 2 else "paraphrase_1"]
        yield "judge_negation", {"caption": caption, "negation": true}, "No"
        other = _most_alike(place, said, places) if place % 2 else None
        if other is not None:
            yield "judge_paraphrase", {"caption": caption, "paraphrase": rows[other]["paraphrase_2"]}, "No"


def from_edits(rows: Sequence[Row]) -> Iterator[Draft]:
    """Verdicts on negations, on captions with two things exchanged, and on differences."""
    differences = [row for row in rows if row["task"] == "difference"]
    for row in rows:
        if row["task"] == "swap_negative":
            yield "judge_paraphrase", {"caption": row["caption"], "paraphrase": row["answer"]}, "No"
        if row["task"] in ("swap_negative", "negate_semclip", "negate_terms"):
            yield "judge_negation", {"caption": row["caption"], "negation": row["answer"]}, "Yes"
    for place, row in enumerate(differences):
        yield from _scores(row, differences[place - 1], turned=place % 2 == 0)


def _scores(row: Row, other: Row, *, turned: bool) -> Iterator[Draft]:
    """A difference is right; wrong is one of other pictures or, if `turned`, its own with the captions exchanged."""
    one, two, difference = row["caption"], row["other_caption"], row["answer"]
    yield _score(one, two, difference, 1, "It is right about both images.")
    if turned:
        yield _score(two, one, difference, 0, "It takes image 1 for image 2.")
    else:
        yield _score(one, two, other["answer"], 0, "It tells of other images.")
    half = _first_side(difference, one, two)
    if half is not None and turned:
        yield _score(one, two, half, 0.5, "It leaves out image 2.")


def _score(one: str, two: str, difference: str, score: float, reasoning: str) -> Draft:
    answer = {
        "image1_description": described(one),
        "image2_description": described(two),
        "score": score,
        "reasoning": reasoning,
    }
    return "score_difference", {"difference": difference, "caption": one, "other_caption": two}, json.dumps(answer)


def described(caption: str) -> str:
    """The description in an alt-text, without codes and advertising."""
    text = _CODES.sub(" ", caption.replace("_", " "))
    parts = [" ".join(part.split()) for part in _EDGES.split(text)]
    words = [set(part.split()) for part in parts]
    repeated = [any(words[place] <= other for other in words[place + 1 :]) for place in range(len(parts))]
    return ", ".join(part for part, again in zip(parts, repeated, strict=True) if part and not again)


def _first_side(difference: str, one: str, two: str) -> str | None:
    """The longest beginning of a difference about only the first picture; None if there is none."""
    first, second = _words(one) - _words(two), _words(two) - _words(one)
    for joint in reversed(list(_JOINTS.finditer(difference))):
        head, rest = difference[: joint.start()], difference[joint.start() :]
        if _words(head) & first and not _words(head) & second and not _words(rest) & first and _words(rest) & second:
            return f"{head.rstrip(' ,;')}."
    return None


def _most_alike(place: int, said: Sequence[set[str]], places: Mapping[str, Sequence[int]]) -> int | None:
    """Place of the most similar other sentence that shares a rare word with the sentence at `place`."""
    own = said[place]
    for word in sorted(own, key=lambda word: (len(places[word]), word)):
        if others := [at for at in places[word] if said[at] != own]:
            return max(others, key=lambda at: sum(1 / len(places[shared]) for shared in sorted(own & said[at])))
    return None


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{2,}", text.lower().replace("_", " ")))


SETS: dict[str, tuple[str, Callable[[Sequence[Row]], Iterator[Draft]]]] = {
    "teacher_verdicts.tsv": ("teacher.tsv", from_paraphrases),
    "teacher_edit_verdicts.tsv": ("teacher_edits.tsv", from_edits),
}
"""File of verdicts -> the file that they follow from, and how."""


def write_verdicts(folder: Path) -> None:
    """Write both files of verdicts to `folder`."""
    for name, (source, derive) in SETS.items():
        with (ASSETS / source).open(encoding="utf-8", newline="") as stream:
            drafts = list(derive(list(csv.DictReader(stream, delimiter="\t"))))
        _write(folder / name, drafts)


def _write(path: Path, drafts: Iterable[Draft]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows({"task": task, **inputs, "answer": answer} for task, inputs, answer in drafts)


if __name__ == "__main__":
    write_verdicts(ASSETS)
