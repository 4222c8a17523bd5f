"""What prompt tasks are asked about: rows of inputs, who accepts them, and how a table is read for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from components.captions.request import InputRow, Inputs

Accepts = Callable[[Inputs], str | None]
"""Why inputs, disarmed (see `components.captions.prompts.disarm`), are not asked about, or None when they are.

A reason has no words of theirs, so that it can be counted.
"""

_PUNCTUATION = ".,;:!?'\"()[]\u2026"

SHOWN = "pictures"
"""Name of an input that is there, with any text, where the question shows the pictures of its captions."""


@dataclass(frozen=True)
class Ask:
    """Which rows of its table a task wants.

    Attributes:
        limit: how many captions at most; the first that the task accepts.
        seed: draws the pairs of a task about two captions, and an image's caption.
        pairs: how many ordered pairs of captions are drawn; None for one of every caption.
        one_per_image: whether at most one caption of an image is wanted, drawn by `seed`; `limit` then counts images.
        pictures: whether the sources carry the pictures of their captions.
        skipped: how many rows were not asked about, by reason; counted while the sources are read.
        images: the `PAIRS` table that has the pictures, for a task that reads another table.
    """

    limit: int
    seed: int = 0
    pairs: int | None = None
    one_per_image: bool = False
    pictures: bool = False
    skipped: Counter[str] = field(default_factory=Counter, compare=False)
    images: Path = Path("data/pairs/train.parquet")


Reader = Callable[[Path, Accepts, Ask], Iterable[InputRow]]
"""Reads a task's table lazily and in one fixed order; memory does not grow with the rows.

What is wrong with the table is an `InputError` once that row is reached.
"""


def caption_words(fewest: int, most: int) -> Accepts:
    """Accepts captions of so many words; punctuation that stands alone, as in Flickr8k's "a dog .", is no word."""

    def accepts(inputs: Inputs) -> str | None:
        words = sum(bool(word.strip(_PUNCTUATION)) for word in inputs["caption"].split())
        if words > most:
            return f"caption has more than {most} words"
        return f"caption has fewer than {fewest} words" if words < fewest else None

    return accepts


short_captions = caption_words(2, 15)
"""Accepts what ParaCLIP's released code does; no other paper has a filter of length."""


def anything(_inputs: Inputs) -> None:
    """Accepts all inputs."""
    return
