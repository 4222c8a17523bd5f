"""Answers that talk about the task, or repeat its prompt, instead of being a caption."""

from __future__ import annotations

import re

from components.captions.task import PromptTask

_LEAD_INS = re.compile(
    r"^\W*(?:(?:sure|certainly|of course|okay|absolutely)\b|here(?:'s| is| are) (?:a|an|the|your|my|one|some)\b"
    r"(?:\W+\w+){0,3}?\W+(?:paraphras|rephras|rewrit|version|caption)"
    r"|(?:paraphrased?|rephrased|rewritten|caption|answer|output|response|text)(?: \w+){0,2}[\s*_]*:"
    r"|the (?:\w+ )?(?:caption|text|paraphrase|sentence) (?:is|was|reads|says|describes|can be|could be|should be)\b"
    r"|(?:i am|i'm) (?:sorry|unable|an)\b|i (?:can ?no|can')t\b|as an? (?:ai|language model)\b)"
    r"|<\|[a-z_]+\|>",
    re.IGNORECASE,
)
_ABOUT_THE_TASK = re.compile(r"\b(?:the|this|that) (?:sentence|caption|statement)\b", re.IGNORECASE)
_PHRASE_WORDS = 3


def prompt_phrases(task: PromptTask) -> frozenset[tuple[str, ...]]:
    """Every run of three words of the task's own question, the texts asked about left out.

    Demonstrations between the first and the last message are no part of it: a good answer sounds like theirs.
    """
    messages = task.messages(dict.fromkeys(task.inputs, "\x00"))
    asked = (messages[0], messages[-1])
    parts = [part for message in asked for part in message["content"].split("\x00")]
    return frozenset(phrase for part in parts for phrase in _phrases(part))


def find_echo(text: str, source: str, phrases: frozenset[tuple[str, ...]]) -> str | None:
    """What makes `text` an echo (`lead_in`, `task` or `prompt`), or None; words that `source` holds too are none."""
    for name, pattern in (("lead_in", _LEAD_INS), ("task", _ABOUT_THE_TASK)):
        if pattern.search(text) and not pattern.search(source):
            return name
    return "prompt" if (_phrases(text) & phrases) - _phrases(source) else None


def _phrases(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"[^\W_]+", text.casefold())
    return set(zip(*(words[start:] for start in range(_PHRASE_WORDS)), strict=False))
