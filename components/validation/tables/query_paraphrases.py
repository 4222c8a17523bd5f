"""Evaluation queries in other words: to expand a query with, or a test set once a human has read it."""

from __future__ import annotations

from components.core.records import QUERY_PARAPHRASES
from components.validation.checks.benchmark_checks import UNSEEN
from components.validation.checks.general import KEPT
from components.validation.table import Answer, Synthesised

TABLE = Synthesised(
    name="query_paraphrases",
    table=QUERY_PARAPHRASES,
    answers=(Answer("paraphrase", "query_paraphrase", (*UNSEEN, *KEPT)),),
    about="queries",
)
