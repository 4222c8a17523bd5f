"""SemCLIP's judge of negations: whether a sentence contradicts its caption."""

from __future__ import annotations

from components.captions.prompting.task import semclip_judge

TASK = semclip_judge(
    "judge_negation",
    judges="negate_semclip",
    answer="negation",
    called="false sentence",
    question="Does the false sentence contradict or misrepresent the original?",
)
