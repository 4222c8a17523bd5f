"""Whether a thing that a model called absent is in the picture."""

from __future__ import annotations

from components.captions.prompting.inputs.pictures import read_pictures
from components.captions.prompting.parsing import clear_verdict
from components.captions.prompting.request import PICTURE, Chat, Inputs
from components.captions.prompting.task import PromptTask, chat
from components.captions.prompting.tasks.caption_picture import ABSENT


def _messages(inputs: Inputs) -> Chat:
    question = f'{PICTURE}Does this picture show "{inputs[ABSENT]}"? Answer "Yes" or "No".'
    return chat("You look closely and judge texts.", question)


TASK = PromptTask(
    name="check_absent",
    citation="wording ours",
    inputs=(ABSENT,),
    reads=read_pictures,
    messages=_messages,
    parse=clear_verdict,
    outputs=("verdict",),
    pictures=True,
)
