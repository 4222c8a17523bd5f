"""NegCLIP's hard negatives: the caption's own words, two of them exchanged."""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_captions
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, chat


def _messages(inputs: Inputs) -> Chat:
    question = f'Exchange two things of the caption "{inputs["caption"]}" so that it describes another picture.'
    return chat("You write captions that are false.", question)


TASK = PromptTask(
    name="swap_negative",
    citation=(
        "NegCLIP (ICLR 2023, 'When and why vision-language models behave like bags-of-words'), section 4, which swaps "
        "words by spaCy's parts of speech and asks no language model; wording ours"
    ),
    inputs=("caption",),
    reads=read_captions,
    messages=_messages,
    outputs=("hard_negative",),
)
