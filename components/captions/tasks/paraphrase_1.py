"""ParaCLIP's first step: a noisy caption to plain language."""

from __future__ import annotations

from components.captions.task import Chat, PromptTask, first_line
from components.records import PAIRS

MAX_WORDS, MIN_WORDS = 15, 2


def _accepts(caption: str) -> str | None:
    words = len(caption.split())
    return None if MIN_WORDS <= words <= MAX_WORDS else f"caption has {words} words, wants {MIN_WORDS} to {MAX_WORDS}"


def _messages(caption: str) -> Chat:
    question = f'Paraphrase the given caption "{caption}" concisely while preserving the meaning.'
    return [{"role": "system", "content": "You rewrite captions."}, {"role": "user", "content": question}]


TASK = PromptTask(
    name="paraphrase_1",
    citation="ParaCLIP (EACL Findings 2024), section 2.1; the length filter is its released code's",
    reads=PAIRS,
    accepts=_accepts,
    messages=_messages,
    parse=first_line,
)
