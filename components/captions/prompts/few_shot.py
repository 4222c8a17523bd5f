"""Prompts with worked examples: turns of a chat, which small models follow better, or one text, as papers print."""

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


def few_shot_text(demonstrations: Sequence[tuple[str, str]], question: str) -> str:
    """One text of questions and answers, which ends where the last answer begins."""
    told = [f"Q: {asked}\n\nA: {answer}" for asked, answer in demonstrations]
    return "\n\n".join([*told, f"Q: {question}\n\nA:"])
