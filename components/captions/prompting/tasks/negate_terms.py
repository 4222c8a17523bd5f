"""Negations in the manner of CC-Neg: the caption with one "no", "not" or "without" put into it."""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_captions
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, chat


def _messages(inputs: Inputs) -> Chat:
    question = (
        'Put one of the words "no", "not" and "without" into the subject or the predicate of the caption '
        f'"{inputs["caption"]}" so that it denies what the picture shows.'
    )
    return chat("You write captions that are false.", question)


TASK = PromptTask(
    name="negate_terms",
    citation="CoN-CLIP (arXiv 2403.20312), its CC-Neg data, which PaLM wrote; its prompt is not released: wording ours",
    inputs=("caption",),
    reads=read_captions,
    messages=_messages,
    outputs=("negated_term",),
    answers_repeat=("one of the",),
)
