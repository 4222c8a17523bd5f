"""Whether texts that a model wrote of a picture are true of it."""

from __future__ import annotations

from components.captions.prompting.inputs.pictures import read_pictures
from components.captions.prompting.parsing import clear_verdict
from components.captions.prompting.request import PICTURE, Chat, Inputs
from components.captions.prompting.task import PromptTask, chat
from components.captions.prompting.tasks.caption_picture import TEXTS


def _messages(inputs: Inputs) -> Chat:
    shown = "\n".join(f'- "{inputs[key]}"' for key in TEXTS if key in inputs)
    question = f'{PICTURE}Are all of these texts true of this picture?\n{shown}\nAnswer "Yes" or "No".'
    return chat("You look closely and judge texts.", question)


TASK = PromptTask(
    name="check_picture",
    citation="wording ours",
    inputs=TEXTS,
    reads=read_pictures,
    messages=_messages,
    parse=clear_verdict,
    outputs=("verdict",),
    pictures=True,
)
