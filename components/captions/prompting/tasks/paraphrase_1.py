"""ParaCLIP's first step: a noisy caption to plain language."""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_captions, short_captions
from components.captions.prompting.request import Inputs
from components.captions.prompting.task import PromptTask, chat, question_alone


def _question(inputs: Inputs) -> str:
    return f'Paraphrase the given caption "{inputs["caption"]}" concisely while preserving the meaning.'


TASK = PromptTask(
    name="paraphrase_1",
    citation="ParaCLIP (EACL Findings 2024), section 2.1; the length filter is its released code's",
    inputs=("caption",),
    reads=read_captions,
    accepts=short_captions,
    messages=lambda inputs: chat("You rewrite captions.", _question(inputs)),
    published=lambda inputs: question_alone(_question(inputs)),
    outputs=("paraphrase_1",),
    keeps_meaning=True,
)
