"""ParaCLIP's second step: the first paraphrase in other words."""

from __future__ import annotations

from components.captions.task import Chat, PromptTask, first_line
from components.records import GENERATIONS


def _accepts(text: str) -> str | None:
    return None if text.strip() else "there is no first paraphrase to rewrite"


def _messages(text: str) -> Chat:
    question = (
        f'Paraphrase the given text "{text}" concisely while preserving the meaning and avoiding use of existing words.'
    )
    return [{"role": "system", "content": "You rewrite captions."}, {"role": "user", "content": question}]


TASK = PromptTask(
    name="paraphrase_2",
    citation="ParaCLIP (EACL Findings 2024), section 2.1",
    reads=GENERATIONS,
    accepts=_accepts,
    messages=_messages,
    parse=first_line,
)
