"""What a prompt task declares."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from components.records import Table

Chat = list[dict[str, str]]
"""Chat messages as every engine takes them: dicts with `role` and `content`."""


@dataclass(frozen=True)
class PromptTask:
    """One question put to a language model about one text.

    Attributes:
        name: the task's name, its file and its key in params.yaml.
        citation: where the prompt comes from.
        reads: the table whose texts it asks about: captions of `PAIRS`, or accepted answers of `GENERATIONS`.
        accepts: why a text is not asked about, or None when it is.
        messages: renders the chat; whatever is the same for all rows stands first, for prefix caching.
        parse: the answer as text, or None when it is unusable; never raises.
    """

    name: str
    citation: str
    reads: Table
    accepts: Callable[[str], str | None]
    messages: Callable[[str], Chat]
    parse: Callable[[str], str | None]


def first_line(answer: str) -> str | None:
    """The first non-empty line without quotes around it; None when there is none."""
    for line in answer.strip().splitlines():
        cleaned = re.sub(r"\s+", " ", line).strip(" \"'`*")
        if cleaned:
            return cleaned
    return None
