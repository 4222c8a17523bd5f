"""Every frame of an evaluation sentence as a pattern, so that a training text that fits one is noticed."""

from __future__ import annotations

import re
from functools import cache

from components.data.world.description import difference_text, evaluation_text, negation_text

_SLOT = re.compile(r"\\\{\w+\\\}")


@cache
def evaluation_frames() -> tuple[re.Pattern[str], ...]:
    """One pattern per evaluation frame, each slot matching any words; for leak checks."""
    frames = (
        *sum(evaluation_text.QUERIES.values(), ()),
        *sum(evaluation_text.PARAPHRASES.values(), ()),
        *negation_text.frames(),
        *difference_text.frames(),
    )
    return tuple(_pattern(frame) for frame in frames)


def _pattern(frame: str) -> re.Pattern[str]:
    body = _SLOT.sub(lambda _slot: r"[\w' -]+?", re.escape(frame.rstrip(".")))
    return re.compile(rf"^\W*{body}\W*$", re.IGNORECASE)
