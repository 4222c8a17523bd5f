"""ParaCLIP's second step: the first paraphrase in other words."""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_answers
from components.captions.prompting.request import Inputs
from components.captions.prompting.task import PromptTask, chat, question_alone


def _question(inputs: Inputs) -> str:
    return (
        f'Paraphrase the given text "{inputs["paraphrase_1"]}" concisely while preserving the meaning and avoiding use '
        "of existing words."
    )


TASK = PromptTask(
    name="paraphrase_2",
    citation="ParaCLIP (EACL Findings 2024), section 2.1",
    inputs=("paraphrase_1",),
    reads=read_answers("paraphrase_1"),
    messages=lambda inputs: chat("You rewrite captions.", _question(inputs)),
    published=lambda inputs: question_alone(_question(inputs)),
    outputs=("paraphrase_2",),
    keeps_meaning=True,
)
