"""SemCLIP's judged paraphrases: the caption in other words, true to the picture."""

from __future__ import annotations

from components.core.records import SEMCLIP_PARAPHRASES
from components.validation.checks.general import COMMON, FAITHFUL, KEPT
from components.validation.table import Answer, Synthesised

TABLE = Synthesised(
    name="semclip_paraphrases",
    table=SEMCLIP_PARAPHRASES,
    answers=(Answer("semclip_paraphrase", "judge_paraphrase", (*COMMON, *KEPT, FAITHFUL)),),
)
