"""CS-CLIP's foils: a part of a caption with one thing changed, so that it is false of the picture."""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_answers
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, chat


def _messages(inputs: Inputs) -> Chat:
    question = (
        f'Change one thing, attribute or relation in "{inputs["unit"]}" so that it is false of the picture with the '
        f'caption "{inputs["caption"]}". Answer with the changed phrase alone.'
    )
    return chat("You write captions that are false.", question)


TASK = PromptTask(
    name="change_unit",
    citation="CS-CLIP (arXiv 2602.23906), its minimally edited foils; wording ours",
    inputs=("unit", "caption"),
    reads=read_answers("unit", caption="source"),
    messages=_messages,
    outputs=("unit_foil",),
)
