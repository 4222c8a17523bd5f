"""Checks that only the embedded world allows: its facts, its evaluation frames and its last tier of words."""

from __future__ import annotations

import re
from functools import cache

from components.data.world import facts
from components.data.world.evaluation_text import evaluation_frames
from components.data.world.lexicon import load_lexicon, word_pattern
from components.data.world.scenes import Scene


def find_leak(text: str) -> str | None:
    """`word` when `text` holds a last-tier word, `frame` when it fits an evaluation frame, else None."""
    if _unseen_words().search(text):
        return "word"
    return "frame" if any(frame.search(text.strip()) for frame in evaluation_frames()) else None


def find_fault(text: str, scene_facts: str) -> str | None:
    """The first fact of the scene that `text` gets wrong, omits or adds; None when it is faithful."""
    return facts.find_fault(text, Scene.from_json(scene_facts))


@cache
def _unseen_words() -> re.Pattern[str]:
    words = load_lexicon().tier_words("unseen")
    return re.compile("|".join(word_pattern(word).pattern for word in words), re.IGNORECASE)
