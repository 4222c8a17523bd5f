"""Prompts with worked examples, as turns of a chat: small models follow these better than one long text."""

from __future__ import annotations

from collections.abc import Sequence

from components.captions.request import Chat


def few_shot(system: str, demonstrations: Sequence[tuple[str, str]], question: str) -> Chat:
    """A system message, each demonstration's question and answer, which are the same for all rows, and `question`."""
    turns = [
        {"role": role, "content": text}
        for pair in demonstrations
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return [{"role": "system", "content": system}, *turns, {"role": "user", "content": question}]
