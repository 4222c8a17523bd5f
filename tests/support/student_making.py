"""Lessons, settings and models for the tests of students."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from components.captions.prompting.tasks import find_task
from components.captions.students.lessons import Lesson
from components.core.settings import Student
from components.encoders.language_models.language_model import LanguageModel, load_language_model

WORDS = ("dog", "cat", "sofa", "red", "small", "hat", "two", "long", "green", "kite")


def make_lessons(count: int, seed: int = 0) -> list[Lesson]:
    """Captions of a few words and other words for them."""
    rng = random.Random(seed)
    return [Lesson(find_task("paraphrase_1"), {"caption": _words(rng)}, _words(rng).capitalize()) for _ in range(count)]


def make_plan(**changes: Any) -> Student:
    given = {"tasks": ["paraphrase_1"], "teacher": ["teacher.tsv"], "batch_size": 4, "epochs": 2, "lr": 0.01}
    return Student.model_validate(given | {"checkpoint_every": 2, "acceptance": 0} | changes)


def load_tiny(base: Path) -> LanguageModel:
    """The model of `save_tiny_language_model`, in float32."""
    return load_language_model(None, torch.float32, str(base))


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(2, 12)))
