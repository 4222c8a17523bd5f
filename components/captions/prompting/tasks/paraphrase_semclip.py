"""SemCLIP's paraphrases: the caption with the same meaning, for a judge to accept or reject."""

from __future__ import annotations

from components.captions.prompting.task import semclip_generator

TASK = semclip_generator(
    "paraphrase_semclip",
    system="You rewrite captions.",
    instruction="Rephrase the following sentence with the same meaning:",
    output="paraphrase",
    answers_repeat=("with the same",),
    keeps_meaning=True,
)
