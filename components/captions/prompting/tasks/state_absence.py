"""NegationCLIP's second question: the caption, which now also says that an object is not there."""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_answers
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, few_shot

_OWN = 'Say in the caption "{caption}" that there is no {absent_object}.'
_DEMONSTRATIONS = (
    ("two plates of pasta on a wooden table", "glass", "two plates of pasta on a wooden table with no glass"),
    ("a man rides a bicycle along a river", "helmet", "a man without a helmet rides a bicycle along a river"),
)
"""Two, as in the paper: the absence of something near, and of something that belongs to a thing in the caption."""

_PUBLISHED = "Add the absence of the {absent_object} to the caption '{caption}'."
_PUBLISHED_DEMONSTRATIONS = (
    ("a woman cutting bread in a kitchen", "apron", "a woman not wearing an apron cutting bread in a kitchen"),
    ("two dogs running along a beach", "ball", "two dogs running along a beach with no ball"),
)
"""Instruction of src/data_generation.py of github.com/parkquasar/NegationCLIP; its two demonstrations are ours."""


def _chat(system: str, question: str, demonstrations: tuple[tuple[str, str, str], ...], inputs: Inputs) -> Chat:
    shown = [(question.format(caption=caption, absent_object=name), answer) for caption, name, answer in demonstrations]
    return few_shot(system, shown, question.format(**inputs))


TASK = PromptTask(
    name="state_absence",
    citation="NegationCLIP (Park et al., ICCV 2025), step 3 of its data; wording ours, `published` has its instruction",
    inputs=("caption", "absent_object"),
    reads=read_answers("absent_object", caption="source"),
    messages=lambda inputs: _chat("You rewrite captions.", _OWN, _DEMONSTRATIONS, inputs),
    published=lambda inputs: _chat(
        "You are a helpful chatbot that generates a concise caption.", _PUBLISHED, _PUBLISHED_DEMONSTRATIONS, inputs
    ),
    outputs=("absence",),
    answers_repeat=("that there is no",),
)
