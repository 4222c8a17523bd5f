"""SemCLIP's paraphrases: the caption with the same meaning, for a judge to look at."""

from __future__ import annotations

from components.captions.inputs.readers import read_captions
from components.captions.inputs.sources import anything
from components.captions.prompts.parsing import first_line
from components.captions.request import Chat, Inputs
from components.captions.task import PromptTask, chat, question_alone


def _messages(inputs: Inputs) -> Chat:
    question = f"Rephrase the following sentence with the same meaning: {inputs['caption']}"
    return chat("You rewrite captions.", question)


def _published(inputs: Inputs) -> Chat:
    return question_alone(f"Rephrase the following sentence with the same meaning:\n{inputs['caption']}")


TASK = PromptTask(
    name="paraphrase_semclip",
    citation="SemCLIP (arXiv 2511.16527), appendix A",
    inputs=("caption",),
    reads=read_captions,
    accepts=anything,
    messages=_messages,
    parse=first_line,
    published=_published,
    outputs=("paraphrase",),
    answers_repeat=("with the same",),
)
