"""Test queries: the words that a person types to find the picture of a caption."""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_captions
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, chat


def _messages(inputs: Inputs) -> Chat:
    question = (
        f'A person searches for a picture with the caption "{inputs["caption"]}" and does not have its words. '
        "Write the query that the person types: the same meaning in other words, with every detail and nothing new."
    )
    return chat("You write search queries of one line.", question)


TASK = PromptTask(
    name="type_query",
    citation=(
        "Queries that a language model rewrote test paraphrase agreement in arXiv 2405.03190 (COCO-P); wording ours"
    ),
    inputs=("caption",),
    reads=read_captions,
    messages=_messages,
    outputs=("paraphrase",),
    answers_repeat=("the same meaning in other words",),
)
