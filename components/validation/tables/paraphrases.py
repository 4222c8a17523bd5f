"""ParaCLIP's pairs of paraphrases: plain language, then other words, both true to the picture."""

from __future__ import annotations

from components.core.records import PARAPHRASES
from components.validation.checks.general import COMMON, FAITHFUL, KEPT, NEW_WORDS
from components.validation.table import Answer, Synthesised

TABLE = Synthesised(
    name="paraphrases",
    table=PARAPHRASES,
    answers=(
        Answer("paraphrase_1", "paraphrase_1", (*COMMON, *KEPT, FAITHFUL), suffix="_1"),
        Answer("paraphrase_2", "paraphrase_2", (*COMMON, *KEPT, FAITHFUL, NEW_WORDS), suffix="_2"),
    ),
)
