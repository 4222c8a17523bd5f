"""SemCLIP's negations: a sentence of which nothing is true any more."""

from __future__ import annotations

from components.captions.inputs.readers import read_captions
from components.captions.inputs.sources import anything
from components.captions.prompts.parsing import first_line
from components.captions.request import Chat, Inputs
from components.captions.task import PromptTask, chat, question_alone


def _messages(inputs: Inputs) -> Chat:
    question = f"Generate a completely false version of this sentence: {inputs['caption']}"
    return chat("You write captions that are false.", question)


def _published(inputs: Inputs) -> Chat:
    return question_alone(f"Generate a completely false version of this sentence:\n{inputs['caption']}")


TASK = PromptTask(
    name="negate_semclip",
    citation="SemCLIP (arXiv 2511.16527), appendix A",
    inputs=("caption",),
    reads=read_captions,
    accepts=anything,
    messages=_messages,
    parse=first_line,
    published=_published,
    outputs=("negation",),
)
