"""NegationCLIP's second question: the caption, which now also says that an object is not there."""

from __future__ import annotations

from components.captions.inputs.readers import read_answers
from components.captions.inputs.sources import anything
from components.captions.prompts.few_shot import few_shot
from components.captions.prompts.parsing import first_line
from components.captions.request import Chat, Inputs
from components.captions.task import PromptTask

_ASKED = 'Say in the caption "{caption}" that there is no {absent_object}.'
_DEMONSTRATIONS = (
    ("two plates of pasta on a wooden table", "glass", "two plates of pasta on a wooden table with no glass"),
    ("a man rides a bicycle along a river", "helmet", "a man without a helmet rides a bicycle along a river"),
)
"""Two, as in the paper: the absence of something near, and of something that belongs to what the caption names."""


def _messages(inputs: Inputs) -> Chat:
    shown = [(_ASKED.format(caption=caption, absent_object=name), answer) for caption, name, answer in _DEMONSTRATIONS]
    return few_shot("You rewrite captions.", shown, _ASKED.format(**inputs))


_PUBLISHED = "Add the absence of the {absent_object} to the caption '{caption}'."
_SHOWN = (
    ("a woman riding a horse in a field", "hat", "a woman not wearing a hat riding a horse in a field"),
    ("a child playing with a ball in the park", "tree", "a child playing with a ball in the park with no tree"),
)


def _published(inputs: Inputs) -> Chat:
    """As `src/data_generation.py` of the authors asks."""
    shown = [(_PUBLISHED.format(caption=caption, absent_object=name), answer) for caption, name, answer in _SHOWN]
    return few_shot("You are a helpful chatbot that generates a concise caption.", shown, _PUBLISHED.format(**inputs))


TASK = PromptTask(
    name="state_absence",
    citation="NegationCLIP (Park et al., ICCV 2025), the last step of its data",
    inputs=("caption", "absent_object"),
    reads=read_answers("absent_object", caption="source"),
    accepts=anything,
    messages=_messages,
    published=_published,
    parse=first_line,
    outputs=("absence",),
)
