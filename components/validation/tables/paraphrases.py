"""Texts in other words, true to the picture: ParaCLIP's pairs, LaCLIP's rewrites, SemCLIP's judged paraphrases, and
those of evaluation queries, to expand a query with, or a test set once a human has read it.
"""

from __future__ import annotations

from components.core.records import PARAPHRASES, QUERY_PARAPHRASES, REWRITES, SEMCLIP_PARAPHRASES
from components.validation.checks.general import COMMON, FAITHFUL, KEPT, NEW_WORDS, UNSEEN
from components.validation.table import Answer, Synthesised

TRUE = (*COMMON, *KEPT, FAITHFUL)

TABLES = (
    Synthesised(
        PARAPHRASES,
        (
            Answer("paraphrase_1", "paraphrase_1", TRUE, suffix="_1"),
            Answer("paraphrase_2", "paraphrase_2", (*TRUE, NEW_WORDS), suffix="_2"),
        ),
    ),
    Synthesised(REWRITES, (Answer("rewrite", "rewrite", (*TRUE, NEW_WORDS)),)),
    Synthesised(SEMCLIP_PARAPHRASES, (Answer("semclip_paraphrase", "judge_paraphrase", TRUE),)),
    Synthesised(QUERY_PARAPHRASES, (Answer("paraphrase", "query_paraphrase", (*UNSEEN, *KEPT)),), about="queries"),
)
