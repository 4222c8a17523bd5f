"""ParaCLIP's second step: the first paraphrase in other words."""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_answers
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, chat, question_alone


def _accepts(inputs: Inputs) -> str | None:
    return None if inputs["paraphrase_1"].strip() else "there is no first paraphrase to rewrite"


def _question(inputs: Inputs) -> str:
    return (
        f'Paraphrase the given text "{inputs["paraphrase_1"]}" concisely while preserving the meaning and avoiding use '
        "of existing words."
    )


def _messages(inputs: Inputs) -> Chat:
    return chat("You rewrite captions.", _question(inputs))


def _published(inputs: Inputs) -> Chat:
    return question_alone(_question(inputs))


TASK = PromptTask(
    name="paraphrase_2",
    citation="ParaCLIP (EACL Findings 2024), section 2.1",
    inputs=("paraphrase_1",),
    reads=read_answers("paraphrase_1"),
    accepts=_accepts,
    messages=_messages,
    published=_published,
    outputs=("paraphrase_2",),
)
