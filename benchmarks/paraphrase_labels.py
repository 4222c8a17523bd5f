"""Answers of a language model to Flickr8k's captions, each labelled by hand; the captions are not in the file.

A row has the caption's key `<image>#<n>` and hash, the task, and the answer. Every word of the caption is written as
its place among the caption's words: `{2}`, or `{2^}` where the answer has it with a capital. So the data set is needed
to read it.

    python -m benchmarks.paraphrase_labels --captions data/captions --output drawn.tsv

draws rows to label among what stage `synthesize` wrote, before validation, and prints them.
"""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from components.core.system.errors import InputError, run_command
from components.core.tables.files import content_hash
from components.core.tables.records import GENERATIONS

LABELS = Path(__file__).parent / "assets" / "paraphrase_labels.tsv"
FLICKR8K = Path(__file__).parents[2] / "shared" / "data" / "flickr8k"
TASKS = {"paraphrase_1": "paraphrases", "paraphrase_2": "paraphrases"}
"""The tasks that are labelled, and the folder of each one's answers."""

REASONS = {
    "changed": "says another object, number, colour, action, place or relation",
    "lost": "leaves something out",
    "added": "says something that the caption does not",
    "nonsense": "is no sentence, or no sense can be made of it",
    "repeats": "says the caption again, or a thing twice",
}
"""Reasons why an answer is bad, the worst that applies, in this order."""

_COLUMNS = ("key", "caption_sha256", "task", "first", "answer", "label", "reason")
_WORD = re.compile(r"[^\W\d_]+")
_PLACE = re.compile(r"\{(\d+)([\^!]?)\}")


@dataclass(frozen=True)
class Labelled:
    """An answer and a reader's verdict.

    Attributes:
        key: of the caption.
        task: the name of the prompt task.
        source: the text that the task rewrote, the caption or, of `paraphrase_2`, the first paraphrase.
        reason: why the answer is bad; empty for a good one.
    """

    key: str
    task: str
    caption: str
    source: str
    answer: str
    label: Literal["good", "bad"]
    reason: str


def hidden(text: str, caption: str) -> str:
    """`text` with places for the words that `caption` has.

    >>> hidden("A tan dog runs.", "the dog runs on a road")
    '{4^} tan {1} {2}.'
    """
    places = {word: place for place, word in enumerate(_distinct(caption))}

    def place(found: re.Match[str]) -> str:
        word = found[0]
        form = "" if word.islower() else "^" if word == word.capitalize() else "!"
        return f"{{{places[word.lower()]}{form}}}" if word.lower() in places else word

    return _WORD.sub(place, text)


def shown(text: str, caption: str) -> str:
    """What `hidden` made `text` of.

    >>> shown("{4^} tan {1} {2}.", "the dog runs on a road")
    'A tan dog runs.'
    """
    words = _distinct(caption)
    forms = {"": str.lower, "^": str.capitalize, "!": str.upper}
    return _PLACE.sub(lambda found: forms[found[2]](words[int(found[1])]), text)


def _distinct(caption: str) -> list[str]:
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(caption)))


def read_captions(folder: Path = FLICKR8K) -> dict[str, str]:
    """Flickr8k's captions by key.

    Raises:
        InputError: the file is missing.
    """
    path = folder / "Flickr8k.token.txt"
    if not path.is_file():
        raise InputError(f"{path} is missing: put Flickr8k's captions there, whose words the labelled answers lack")
    lines = path.read_text("utf-8").splitlines()
    return {key: caption for key, _, caption in (line.partition("\t") for line in lines)}


def read_labels(captions: Mapping[str, str], path: Path = LABELS) -> list[Labelled]:
    """The labelled answers, with the captions' words put in.

    Raises:
        InputError: a caption is not the one that was labelled.
    """
    found = []
    for row in read_rows(path):
        caption = captions.get(row["key"], "")
        if _hash(caption) != row["caption_sha256"]:
            raise InputError(f"{path}: caption {row['key']} is another one in this Flickr8k: use the published file")
        first, answer = shown(row["first"], caption), shown(row["answer"], caption)
        label: Literal["good", "bad"] = "good" if row["label"] == "good" else "bad"
        found.append(Labelled(row["key"], row["task"], caption, first or caption, answer, label, row["reason"]))
    return found


def read_rows(path: Path = LABELS) -> list[dict[str, str]]:
    """The file as it stands."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", strict=True))


def draw(answers: Path, captions: Mapping[str, str], each: int, seed: int) -> list[dict[str, str]]:
    """`each` answers of every task at random, of different captions, to be labelled."""
    keys = {caption: key for key, caption in reversed(captions.items())}
    sources: dict[str, str] = {}
    rows, taken = [], set[str]()
    for task, table in TASKS.items():
        found = GENERATIONS.read(answers / table / f"{task}.parquet", ["id", "source", "text"]).to_pylist()
        sources |= {row["id"]: row["source"] for row in found if task != "paraphrase_2"}
        left = [row for row in found if row["text"] and row["id"] not in taken]
        for row in random.Random(f"{seed} {task}").sample(left, each):
            taken.add(row["id"])
            caption = sources[row["id"]]
            first = row["source"] if task == "paraphrase_2" else ""
            texts = (hidden(text, caption) for text in (first, row["text"]))
            rows.append(dict(zip(_COLUMNS, (keys[caption], _hash(caption), task, *texts, "", ""), strict=True)))
    return rows


def write_rows(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Write rows as `read_rows` gives them."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, _COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _hash(caption: str) -> str:
    return content_hash(caption)[:16]


def main(
    captions: Annotated[Path, typer.Option(help="Where stage `synthesize` wrote its answers.")],
    output: Annotated[Path, typer.Option(help="The file to write, to be labelled by hand.")],
    each: Annotated[int, typer.Option(help="How many answers of each task.")] = 50,
    seed: Annotated[int, typer.Option(help="Draws them.")] = 0,
) -> None:
    """Draw answers to label."""

    def command() -> None:
        known = read_captions()
        rows = draw(captions, known, each, seed)
        write_rows(output, rows)
        for number, row in enumerate(rows):
            texts = (shown(row[column], known[row["key"]]) for column in ("first", "answer"))
            print(number, row["task"], known[row["key"]], *filter(None, texts), sep="\n  ")

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
