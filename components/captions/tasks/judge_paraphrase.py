"""SemCLIP's judge of paraphrases: whether a caption's meaning is kept."""

from __future__ import annotations

from components.captions.inputs.readers import read_answers
from components.captions.inputs.sources import Inputs, anything
from components.captions.prompts.parsing import verdict
from components.captions.request import Chat
from components.captions.task import PromptTask, chat


def _messages(inputs: Inputs) -> Chat:
    question = (
        f'The original sentence is: "{inputs["caption"]}"\n'
        f'The generated paraphrase is: "{inputs["paraphrase"]}"\n'
        'Does the paraphrase accurately retain the meaning of the original? Respond with "Yes" or "No".'
    )
    return chat("You judge captions.", question)


TASK = PromptTask(
    name="judge_paraphrase",
    citation="SemCLIP (arXiv 2511.16527), appendix A; how verdicts are read is its released code's",
    inputs=("caption", "paraphrase"),
    reads=read_answers("paraphrase", caption="source"),
    accepts=anything,
    messages=_messages,
    parse=verdict,
    outputs=("verdict",),
    judges="paraphrase_semclip",
)
