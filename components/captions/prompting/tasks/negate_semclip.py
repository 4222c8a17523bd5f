"""SemCLIP's negations: a sentence of which nothing is true any more."""

from __future__ import annotations

from components.captions.prompting.task import semclip_generator

TASK = semclip_generator(
    "negate_semclip",
    system="You write captions that are false.",
    instruction="Generate a completely false version of this sentence:",
    output="negation",
)
