"""LaCLIP's rewrites: the caption in other words, true to the picture."""

from __future__ import annotations

from components.core.records import REWRITES
from components.validation.checks.general import COMMON, FAITHFUL, KEPT, NEW_WORDS
from components.validation.table import Answer, Synthesised

TABLE = Synthesised(
    name="rewrites",
    table=REWRITES,
    answers=(Answer("rewrite", "rewrite", (*COMMON, *KEPT, FAITHFUL, NEW_WORDS)),),
)
