"""PC-CLIP's longer descriptions of classes, for prompts that say more than a name."""

from __future__ import annotations

from components.core.records import CLASS_DESCRIPTIONS
from components.validation.checks.benchmark_checks import ABOUT_CLASSES
from components.validation.table import Answer, Synthesised

TABLE = Synthesised(
    name="class_descriptions",
    table=CLASS_DESCRIPTIONS,
    answers=(Answer("description", "class_description", ABOUT_CLASSES),),
    about="classes",
)
