"""CS-CLIP's first question: one part of a caption, a thing with its attributes or a relation of two things.

In the paper's code one answer has all parts of a caption with their foils. Here each sample names one part, and
`change_unit` its foil, so that validation can check both; samples that name the same part twice are duplicates.
"""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_captions
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, chat


def _messages(inputs: Inputs) -> Chat:
    question = (
        f'Take one part out of the caption "{inputs["caption"]}": one thing with all that is said of it, or two things '
        "and how they stand to each other. Answer with that phrase alone."
    )
    return chat("You take captions apart.", question)


TASK = PromptTask(
    name="name_unit",
    citation="CS-CLIP (arXiv 2602.23906), its entity and relation units; wording ours",
    inputs=("caption",),
    reads=read_captions,
    messages=_messages,
    outputs=("unit",),
    answers_repeat=("to each other", "out of the"),
)
