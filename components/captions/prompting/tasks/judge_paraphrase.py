"""SemCLIP's judge of paraphrases: whether a caption's meaning is kept."""

from __future__ import annotations

from components.captions.prompting.task import semclip_judge

TASK = semclip_judge(
    "judge_paraphrase",
    judges="paraphrase_semclip",
    answer="paraphrase",
    called="paraphrase",
    question="Does the paraphrase accurately retain the meaning of the original?",
)
