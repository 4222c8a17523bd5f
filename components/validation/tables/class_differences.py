"""PC-CLIP's comparisons of two classes, for comparative prompting."""

from __future__ import annotations

from components.core.records import CLASS_DIFFERENCES
from components.validation.checks.benchmark_checks import ABOUT_CLASSES
from components.validation.table import Answer, Synthesised

TABLE = Synthesised(
    name="class_differences",
    table=CLASS_DIFFERENCES,
    answers=(Answer("difference", "class_difference", ABOUT_CLASSES),),
    about="classes",
)
