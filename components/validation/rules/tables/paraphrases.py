"""Paraphrases that are true of the picture: ParaCLIP's pairs, LaCLIP's rewrites, SemCLIP's judged paraphrases.

Paraphrases of evaluation queries serve to expand a query, or as a test set after a human has read them.
"""

from __future__ import annotations

from components.core.tables.records import PARAPHRASES, QUERY_PARAPHRASES, REWRITES, SEMCLIP_PARAPHRASES
from components.validation.rules.checks.general import COMMON, FAITHFUL, KEPT, NEW_WORDS, UNSEEN
from components.validation.rules.table import Synthesised, TableAnswer

_TRUE = (*COMMON, *KEPT, FAITHFUL)

TABLES = (
    Synthesised(
        PARAPHRASES,
        (
            TableAnswer("paraphrase_1", "paraphrase_1", _TRUE, suffix="_1"),
            TableAnswer("paraphrase_2", "paraphrase_2", (*_TRUE, NEW_WORDS), suffix="_2"),
        ),
    ),
    Synthesised(REWRITES, (TableAnswer("rewrite", "rewrite", (*_TRUE, NEW_WORDS)),)),
    Synthesised(SEMCLIP_PARAPHRASES, (TableAnswer("semclip_paraphrase", "judge_paraphrase", _TRUE),)),
    Synthesised(QUERY_PARAPHRASES, (TableAnswer("paraphrase", "query_paraphrase", (*UNSEEN, *KEPT)),), about="queries"),
)
