"""SemCLIP's judge of paraphrases: whether a caption's meaning is kept."""

from __future__ import annotations

from textwrap import indent

from components.captions.inputs.readers import read_answers
from components.captions.inputs.sources import anything
from components.captions.prompts.parsing import verdict
from components.captions.request import Chat, Inputs
from components.captions.task import PromptTask, chat, question_alone


def _question(inputs: Inputs) -> str:
    return (
        f'The original sentence is: "{inputs["caption"]}"\n'
        f'The generated paraphrase is: "{inputs["paraphrase"]}"\n'
        'Does the paraphrase accurately retain the meaning of the original? Respond with "Yes" or "No".'
    )


def _messages(inputs: Inputs) -> Chat:
    return chat("You judge captions.", _question(inputs))


def _published(inputs: Inputs) -> Chat:
    return question_alone(f"\n{indent(_question(inputs), '    ')}\n    ")


TASK = PromptTask(
    name="judge_paraphrase",
    citation="SemCLIP (arXiv 2511.16527), appendix A; how verdicts are read is its released code's",
    inputs=("caption", "paraphrase"),
    reads=read_answers("paraphrase", caption="source"),
    accepts=anything,
    messages=_messages,
    parse=verdict,
    published=_published,
    outputs=("verdict",),
    judges="paraphrase_semclip",
)
