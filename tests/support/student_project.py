"""A project for students: captions, settings, and an engine that rewrites what a question quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from more_itertools import batched

from components.captions.prompting.request import Reply, Request
from components.core.settings import Settings
from components.core.tables.records import PAIRS
from components.validation.rules.measuring.probes import Probes

CAPTIONS = [f"IMG {number} small dog left of a large cat" for number in range(12)]


class Rewriter:
    """Answers with what `rewrite` makes of what the last question quotes, or of all of it; notes what it is asked."""

    def __init__(self, rewrite: Callable[[Sequence[str]], str], model: str = "rewriter") -> None:
        self.model = model
        self._rewrite = rewrite
        self.asked: list[Request] = []

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for batch in batched(requests, 4):
            self.asked += batch
            asked = [one.messages[-1]["content"] for one in batch]
            answers = [self._rewrite(re.findall(r'"([^"]*)"', text) or [text]) for text in asked]
            yield [Reply(one, answer) for one, answer in zip(batch, answers, strict=True)]


def good(texts: Sequence[str]) -> str:
    """What passes the checks of paraphrases: other words, and a number from the text that keeps answers apart."""
    number = re.findall(r"\d+", texts[0])
    return f"Number {' '.join(number)}: beside one big tabby sits a little hound."


def parrot(texts: Sequence[str]) -> str:
    """What never passes."""
    return texts[0]


def make_project(folder: Path, params: dict[str, Any], students: dict[str, dict[str, Any]]) -> Settings:
    """Write params.yaml and the training captions; `params` is the repository's params.yaml."""
    count = len(CAPTIONS)
    ids = [f"p{n}" for n in range(count)]
    columns = {"id": ids, "image_id": ids, "image": [b"i"] * count, "facts": [None] * count}
    PAIRS.write(folder / "data" / "pairs" / "train.parquet", columns | {"caption": CAPTIONS})
    params["synthesize"]["cached_answers"] = None
    params["synthesize"]["llms"]["teacher"] = {"engine": "local"}
    params["validate"] |= {"check_scene_facts": False}
    params["students"] = students
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
