"""PC-CLIP's texts about classes: longer descriptions for prompts, and differences of two for comparative prompting."""

from __future__ import annotations

from components.core.records import CLASS_DESCRIPTIONS, CLASS_DIFFERENCES
from components.validation.checks.general import ABOUT_CLASSES
from components.validation.table import Answer, Synthesised

TABLES = (
    Synthesised(CLASS_DESCRIPTIONS, (Answer("description", "class_description", ABOUT_CLASSES),), about="classes"),
    Synthesised(CLASS_DIFFERENCES, (Answer("difference", "class_difference", ABOUT_CLASSES),), about="classes"),
)
