"""Lessons that follow from others: what a judge should say of answers that are known to be right or wrong."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from components.captions.inputs.sources import Inputs

Row = Mapping[str, str]
Draft = tuple[str, Inputs, str]
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
    """What the judges should say of a set of captions, plain sentences (x') and paraphrases of these (x'').

    A caption's own x'' keeps its meaning and contradicts nothing; of every other caption, the judge also sees the
    paraphrase of the caption that is most like it.
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
    """What the judges should say of negations, of captions with two things exchanged, and of differences."""
    differences = [row for row in rows if row["task"] == "difference"]
    for row in rows:
        if row["task"] == "swap_negative":
            yield "judge_paraphrase", {"caption": row["caption"], "paraphrase": row["answer"]}, "No"
        if row["task"] in ("swap_negative", "negate_semclip", "negate_terms"):
            yield "judge_negation", {"caption": row["caption"], "negation": row["answer"]}, "Yes"
    for place, row in enumerate(differences):
        yield from _scores(row, differences[place - 1], turned=place % 2 == 0)


def _scores(row: Row, other: Row, *, turned: bool) -> Iterator[Draft]:
    """A difference is right; wrong is one of other pictures or, if `turned`, its own told the other way round."""
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
    """What an alt-text says of its picture, without the codes and shop talk around it."""
    text = _CODES.sub(" ", caption.replace("_", " "))
    parts = [" ".join(part.split()) for part in _EDGES.split(text)]
    said = [set(part.split()) for part in parts]
    kept = [
        part
        for place, part in enumerate(parts)
        if part and not any(said[place] < other or said[place] == other for other in said[place + 1 :])
    ]
    return ", ".join(kept)


def _first_side(difference: str, one: str, two: str) -> str | None:
    """The longest beginning of a difference that speaks of the first picture alone; None where it cannot be told."""
    first, second = _words(one) - _words(two), _words(two) - _words(one)
    for joint in reversed(list(_JOINTS.finditer(difference))):
        head, rest = difference[: joint.start()], difference[joint.start() :]
        if _words(head) & first and not _words(head) & second and not _words(rest) & first and _words(rest) & second:
            return f"{head.rstrip(' ,;')}."
    return None


def _most_alike(place: int, said: Sequence[set[str]], places: Mapping[str, Sequence[int]]) -> int | None:
    """Who shares a rare word with the sentence at `place`, most words besides, and yet says something else."""
    own = said[place]
    for word in sorted(own, key=lambda word: (len(places[word]), word)):
        if others := [at for at in places[word] if said[at] != own]:
            return max(others, key=lambda at: sum(1 / len(places[shared]) for shared in own & said[at]))
    return None


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{2,}", text.lower().replace("_", " ")))
