"""A caption or a query in other words: ParaCLIP's two steps, LaCLIP's rewrites, and paraphrases of queries."""

from __future__ import annotations

from components.captions.prompting.readers import read_answers, read_captions, read_queries, short_captions
from components.captions.prompting.request import Inputs
from components.captions.prompting.task import PromptTask, chat, completion, question_alone

_REWRITE = "You rewrite captions."


def _plain(inputs: Inputs) -> str:
    return f'Paraphrase the given caption "{inputs["caption"]}" concisely while preserving the meaning.'


def _in_other_words(inputs: Inputs) -> str:
    return (
        f'Paraphrase the given text "{inputs["paraphrase_1"]}" concisely while preserving the meaning and avoiding use '
        "of existing words."
    )


_EXAMPLES = """\
            woman cutting bread in a kitchen => In her kitchen, a woman slices a loaf of bread on a wooden board.

            two dogs on the beach at sunset => Two dogs run along the sand while the sun goes down over the sea.

            an old red truck , parked => A vintage truck with red paint stands parked by the road."""
"""Laid out as in rewrite/llama_rewrite.py of github.com/LijieFan/LaCLIP; the pairs are ours.

The released code draws three of its sixteen example pairs by ChatGPT at random for each caption.
"""


def _with_synonyms(inputs: Inputs) -> str:
    return f"Paraphrase the following sentence, using as many synonyms as possible: {inputs['query']}"


TASKS = (
    PromptTask(
        name="paraphrase_1",
        citation="ParaCLIP (EACL Findings 2024), section 2.1; the length filter is its released code's",
        inputs=("caption",),
        reads=read_captions,
        accepts=short_captions,
        messages=lambda inputs: chat(_REWRITE, _plain(inputs)),
        published=lambda inputs: question_alone(_plain(inputs)),
        outputs=("paraphrase_1",),
        keeps_meaning=True,
    ),
    PromptTask(
        name="paraphrase_2",
        citation="ParaCLIP (EACL Findings 2024), section 2.1",
        inputs=("paraphrase_1",),
        reads=read_answers("paraphrase_1"),
        messages=lambda inputs: chat(_REWRITE, _in_other_words(inputs)),
        published=lambda inputs: question_alone(_in_other_words(inputs)),
        outputs=("paraphrase_2",),
        keeps_meaning=True,
    ),
    PromptTask(
        name="rewrite",
        citation=(
            "LaCLIP (NeurIPS 2023), section 3; also the baseline 'Rewrite FT' of PC-CLIP (TMLR 2025), which prints no "
            "prompt; wording ours, `published` has LaCLIP's instruction"
        ),
        inputs=("caption",),
        reads=read_captions,
        messages=lambda inputs: chat(_REWRITE, f'Rewrite the image caption "{inputs["caption"]}" in your own words.'),
        published=lambda inputs: completion(
            f"write image captions differently,\n\n{_EXAMPLES}\n\n            {inputs['caption']} =>"
        ),
        outputs=("rewrite",),
        keeps_meaning=True,
    ),
    # To expand a query with, and to make a paraphrase test set of.
    PromptTask(
        name="query_paraphrase",
        citation=(
            "Adapting dual-encoder vision-language models for paraphrased retrieval (arXiv 2405.03190), appendix A.2"
        ),
        inputs=("query",),
        reads=read_queries,
        messages=lambda inputs: chat(_REWRITE, _with_synonyms(inputs)),
        published=lambda inputs: completion(_with_synonyms(inputs)),
        outputs=("paraphrase",),
        keeps_meaning=True,
    ),
    # A test query: the words that a person types to find the picture of a caption.
    PromptTask(
        name="type_query",
        citation=(
            "Queries that a language model rewrote test paraphrase agreement in arXiv 2405.03190 (COCO-P); wording ours"
        ),
        inputs=("caption",),
        reads=read_captions,
        messages=lambda inputs: chat(
            "You write search queries of one line.",
            f'A person searches for a picture with the caption "{inputs["caption"]}" and does not have its words. '
            "Write the query that the person types: the same meaning in other words, with every detail and nothing "
            "new.",
        ),
        outputs=("paraphrase",),
        answers_repeat=("the same meaning in other words",),
    ),
)
