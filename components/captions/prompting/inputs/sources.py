"""Types of the readers: which rows a task wants, which inputs it accepts, and how a table is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from components.captions.prompting.request import InputRow, Inputs

Accepts = Callable[[Inputs], str | None]
"""The reason to skip inputs, disarmed (see `components.captions.prompting.prompts.disarm`), or None to accept them.

A reason quotes none of their words, so that equal reasons can be counted.
"""

_PUNCTUATION = ".,;:!?'\"()[]\u2026"

SHOWN = "pictures"
"""Name of an input that is present, with any text, where the question shows the pictures of its captions."""


@dataclass(frozen=True)
class Ask:
    """Which rows of its table a task wants.

    Attributes:
        limit: largest number of captions; the first that the task accepts.
        seed: draws the pairs of a task about two captions, and an image's caption.
        pairs: number of ordered pairs of captions to draw; None for one per caption.
        one_per_image: use one caption per image, drawn by `seed`; `limit` then counts images.
        pictures: include the pictures of the captions.
        skipped: number of skipped rows by reason; counted while the sources are read.
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

A damaged row raises `InputError` once it is reached.
"""


def caption_words(fewest: int, most: int) -> Accepts:
    """Accepts captions of so many words; single punctuation, as in Flickr8k's "a dog .", is not a word."""

    def accepts(inputs: Inputs) -> str | None:
        words = sum(bool(word.strip(_PUNCTUATION)) for word in inputs["caption"].split())
        if words > most:
            return f"caption has more than {most} words"
        return f"caption has fewer than {fewest} words" if words < fewest else None

    return accepts


short_captions = caption_words(2, 15)
"""Accepts the same captions as ParaCLIP's released code; no other paper filters by length."""


def anything(_inputs: Inputs) -> None:
    """Accepts all inputs."""
    return
