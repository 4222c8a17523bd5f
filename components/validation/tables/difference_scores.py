"""PC-CLIP's scores of comparisons: how good a judge finds the difference of two pictures."""

from __future__ import annotations

import json

from components.core.records import DIFFERENCE_SCORES
from components.validation.table import Answer, Check, Synthesised, each


def _score(judgement: str, _source: str) -> float:
    return float(json.loads(judgement)["score"])


SCORE = Check("score", "score", each(_score), low="min_score")
"""Finds the difference good enough."""

TABLE = Synthesised(
    name="difference_scores",
    table=DIFFERENCE_SCORES,
    answers=(Answer("judgement", "score_difference", (SCORE,)),),
)
