"""A project for students: captions, settings, and an engine that rewrites what a question quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from components.captions.validation.rules.probes import Probes
from components.core.settings import Settings
from tests.support.fake_engine import FakeEngine, quoted
from tests.support.server_project import write_captions

CAPTIONS = [f"IMG {number} small dog left of a large cat" for number in range(12)]


def rewriter(rewrite: Callable[[Sequence[str]], str]) -> FakeEngine:
    """Answers with `rewrite` of the texts that a question quotes."""
    return FakeEngine(lambda request: rewrite(quoted(request)), "rewriter", batch=4)


def good(texts: Sequence[str]) -> str:
    """An answer that passes the checks of paraphrases: other words, and a number from the text."""
    number = re.findall(r"\d+", texts[0])
    return f"Number {' '.join(number)}: beside one big tabby sits a little hound."


def make_project(folder: Path, params: dict[str, Any], students: dict[str, dict[str, Any]]) -> Settings:
    """Write params.yaml and the training captions; `params` is the repository's params.yaml."""
    write_captions(folder, CAPTIONS)
    params["synthesize"]["cached_answers"] = None
    params["synthesize"]["llms"]["teacher"] = {"engine": "local"}
    params["validate"]["check_scene_facts"], params["students"] = False, students
    (folder / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    return Settings.model_validate(params)


def plain_probes() -> Probes:
    """Probes that load nothing: words for tokens, half for every similarity."""
    return Probes(
        token_lengths=lambda texts: np.array([len(text.split()) + 2 for text in texts]),
        similarities=lambda texts, _: np.full(len(texts), 0.5),
        find_leak=lambda _: None,
        facts=None,
    )
