"""Answers that talk about the task, or repeat its prompt, instead of being a caption."""

from __future__ import annotations

import re

from components.captions.task import PromptTask
from components.captions.tasks import find_task

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

    Demonstrations before the last question are no part of it: a good answer sounds like theirs. A text that was
    judged may repeat the question of either task.
    """
    messages = task.messages(dict.fromkeys(task.inputs, "\x00"))
    first, last = messages[0]["content"], messages[-1]["content"]
    asked = (first, last) if len(messages) > 1 else (last.rpartition("Q:")[2],)
    own = frozenset(phrase for text in asked for part in text.split("\x00") for phrase in _phrases(part))
    return own if task.judges is None else own | prompt_phrases(find_task(task.judges))


def find_echo(text: str, source: str, phrases: frozenset[tuple[str, ...]]) -> str | None:
    """What makes `text` an echo (`lead_in`, `task` or `prompt`), or None; words that `source` holds too are none."""
    for name, pattern in (("lead_in", _LEAD_INS), ("task", _ABOUT_THE_TASK)):
        if pattern.search(text) and not pattern.search(source):
            return name
    return "prompt" if (_phrases(text) & phrases) - _phrases(source) else None


def _phrases(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"[^\W_]+", text.casefold())
    return set(zip(*(words[start:] for start in range(_PHRASE_WORDS)), strict=False))
