"""Paraphrases of queries: to expand a query with, and to make a paraphrase test set of."""

from __future__ import annotations

from components.captions.prompting.inputs.benchmark_readers import read_queries
from components.captions.prompting.request import Inputs
from components.captions.prompting.task import PromptTask, chat, completion


def _question(inputs: Inputs) -> str:
    return f"Paraphrase the following sentence, using as many synonyms as possible: {inputs['query']}"


TASK = PromptTask(
    name="query_paraphrase",
    citation="Adapting dual-encoder vision-language models for paraphrased retrieval (arXiv 2405.03190), appendix A.2",
    inputs=("query",),
    reads=read_queries,
    messages=lambda inputs: chat("You rewrite captions.", _question(inputs)),
    published=lambda inputs: completion(_question(inputs)),
    outputs=("paraphrase",),
    keeps_meaning=True,
)
