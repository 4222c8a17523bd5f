"""Keeps one caption per training picture: the first, or the first made noisy like the alt-texts of the web.

Captions by several people train a base that knows many wordings of each picture, which few real data sets have.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from components.core.text import content_words
from components.core.text.languages import words_of

_LOST_SHARE = 0.3
"""Share of the words that a noisy caption loses."""
_NAMED_WORDS = 3
"""Number of words in a file name."""


def one_each(pairs: Iterable[dict[str, Any]], *, is_noisy: bool) -> Iterator[dict[str, Any]]:
    """The first pair of every picture, with a noisy caption or its own."""
    seen: set[str] = set()
    for pair in pairs:
        if (image := pair["image_id"]) not in seen:
            seen.add(image)
            yield pair | {"caption": noisy(pair["caption"], image)} if is_noisy else pair


def noisy(caption: str, image_id: str) -> str:
    """The caption in lower case without some words, or, for one picture in three, as a file name.

    The picture's id decides, so that a caption is always the same.

    >>> noisy("A brown dog is running through the tall grass .", "picture 7")
    'a dog is running the tall grass'
    >>> noisy("A brown dog is running through the tall grass .", "picture 4")
    'brown-dog-running_3555.jpg'
    """
    draw, words = random.Random(f"noise {image_id}"), words_of(caption)
    if draw.random() < 1 / 3:
        content = content_words(caption)
        named = [word for word in words if word in content][:_NAMED_WORDS] or words
        return f"{'-'.join(named)}_{draw.randrange(10_000):04}.jpg"
    kept = [word for word in words if draw.random() >= _LOST_SHARE]
    return " ".join(kept or words)
