"""LaCLIP's rewrites: the caption said in another way, several times over."""

from __future__ import annotations

from components.captions.inputs.readers import read_captions
from components.captions.inputs.sources import anything
from components.captions.prompts.parsing import first_line
from components.captions.request import Chat, Inputs
from components.captions.task import PromptTask, chat


def _messages(inputs: Inputs) -> Chat:
    return chat("You rewrite captions.", f'Rewrite the image caption "{inputs["caption"]}" in your own words.')


TASK = PromptTask(
    name="rewrite",
    citation="LaCLIP (NeurIPS 2023), section 3; also the baseline 'Rewrite FT' of PC-CLIP (TMLR 2025)",
    inputs=("caption",),
    reads=read_captions,
    accepts=anything,
    messages=_messages,
    parse=first_line,
    outputs=("rewrite",),
)
