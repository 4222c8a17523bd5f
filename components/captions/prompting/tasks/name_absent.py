"""NegationCLIP's first question: an object that a picture could well show and its caption does not name.

In the paper a vision model (LLaVA-1.6) then decides whether the picture shows it, and drops the caption if so. No model
here sees the picture. Validation can check whether the caption names the object and, in the synthetic dataset,
whether the scene has it; of other pictures some objects said to be absent will be there.
"""

from __future__ import annotations

import re

from components.captions.prompting.inputs.readers import read_captions
from components.captions.prompting.parsing import first_line
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, chat

_MOST_WORDS = 3


def _messages(inputs: Inputs) -> Chat:
    question = (
        f'Which object could well be in the picture with the caption "{inputs["caption"]}" although the caption does '
        "not name it? Answer with the object's name alone."
    )
    return chat("You answer with one word.", question)


def _published(inputs: Inputs) -> Chat:
    question = (
        "Name an object that is not mentioned in the caption, but is likely to be in the image corresponding to the "
        f"caption '{inputs['caption']}'."
    )
    return chat("You are a helpful chatbot that answers with only one word.", question)


def _parse(answer: str) -> str | None:
    """The name in lower case without its article and a full stop; None for more than three words: not a name."""
    line = first_line(answer)
    name = re.sub(r"^(?:an?|the) ", "", (line or "").rstrip(". ").lower())
    return name if name and len(name.split()) <= _MOST_WORDS else None


TASK = PromptTask(
    name="name_absent",
    citation="NegationCLIP (Park et al., ICCV 2025), step 1 of its data; wording ours, its code's is `published`",
    inputs=("caption",),
    reads=read_captions,
    messages=_messages,
    parse=_parse,
    published=_published,
    outputs=("absent_object",),
)
