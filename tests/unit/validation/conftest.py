"""A small validate stage: hand-made answers, a fake token counter, a fake similarity."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.data.world.scenes import Scene, Thing
from components.encoders.sidecar import SIDECAR, Sidecar
from components.files import write_json
from components.records import GENERATIONS, PAIRS, PARAPHRASE_QUERIES
from components.settings import Settings, load_settings
from components.validation import validate
from components.validation.columns import Probes
from components.validation.validate import Files

SCENE = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
CAPTION = "IMG_7 small dog left of large cat red bg.jpg"
GOOD_1 = "A small dog sits left of a large cat, red background."
GOOD_2 = "Scarlet backdrop; a tiny hound waits to the left of one huge tabby."
EVALUATION_QUERY = "Hidden query: a little pup beside some big kitty, all scarlet."


@dataclass
class Answer:
    """One row of both generation tables; `found_2` False leaves the second table without it."""

    text_1: str | None = GOOD_1
    text_2: str | None = GOOD_2
    sample: int = 0
    pair: int = 0
    reason_1: str | None = None
    reason_2: str | None = None
    found_2: bool = True


@dataclass
class Outcome:
    """What the stage wrote."""

    files: Files
    accepted: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def reasons(self) -> set[str]:
        return {reason for row in self.quarantine for reason in row["reason"].split(";")}


Stage = Callable[..., Outcome]


def strict_settings(**limits: Any) -> Settings:
    settings = load_settings(Path(__file__).parents[3] / "params.yaml")
    wide = {"min_accepted_share": 0.0, "max_echo_share": 1.0, "max_leak_share": 1.0}
    return settings.model_copy(update={"validation": settings.validation.model_copy(update=wide | limits)})


def fake_similarity(texts: Any, _others: Any) -> Any:
    """A text that says "unrelated" is far from everything, any other is close."""
    return np.array([0.1 if "unrelated" in text else 0.8 for text in texts], dtype=np.float64)


def fake_token_lengths(texts: Any) -> Any:
    """Two tokens around one per word, and a thousand for every "verbose"."""
    return np.array([2 + len(text.split()) + 1000 * text.count("verbose") for text in texts], dtype=np.int64)


def write_inputs(root: Path, answers: list[Answer]) -> Files:
    files = Files(
        root / "p1.parquet", root / "p2.parquet", root / "train.parquet",
        root / "evaluation", root / "base", root / "validated", root / "docs",
    )  # fmt: skip
    pairs = sorted({answer.pair for answer in answers} | {0})
    PAIRS.write(
        files.pairs,
        {
            "id": [f"pair{pair}" for pair in pairs],
            "image": [b"png"] * len(pairs),
            "caption": [CAPTION] * len(pairs),
            "facts": [SCENE.to_json()] * len(pairs),
        },
    )
    first = [(a, CAPTION, a.text_1, a.reason_1) for a in answers]
    second = [(a, a.text_1 or "lost text", a.text_2, a.reason_2) for a in answers if a.found_2]
    for path, rows in ((files.paraphrase_1, first), (files.paraphrase_2, second)):
        columns: dict[str, list[object]] = {
            "id": [f"pair{answer.pair}" for answer, *_ in rows],
            "sample": [answer.sample for answer, *_ in rows],
            "source": [source for _, source, _, _ in rows],
            "key": ["key"] * len(rows),
            "accepted": [reason is None for *_, reason in rows],
            "text": [text for _, _, text, _ in rows],
            "reason": [reason for *_, reason in rows],
        }
        GENERATIONS.write(path, columns)
    PARAPHRASE_QUERIES.write(
        files.evaluation / "paraphrase_queries.parquet",
        {
            "image_id": ["i"], "query": ["An ordinary query."], "paraphrase": [EVALUATION_QUERY],
            "tier": ["common"], "held_out": ["scene"],
        },
    )  # fmt: skip
    sidecar = Sidecar(
        name="base", model="toy", architecture={}, quick_gelu=False, embed_dim=8, context_length=32, image_size=64,
        method="base",
    )  # fmt: skip
    write_json(files.encoder / SIDECAR, sidecar.model_dump())
    return files


def read_outcome(files: Files) -> Outcome:
    return Outcome(
        files,
        pq.read_table(files.validated / "paraphrases.parquet").to_pylist(),
        pq.read_table(files.validated / "quarantine.parquet").to_pylist(),
        json.loads((files.validated / "summary.json").read_text("utf-8")),
    )


def run_stage(root: Path, answers: list[Answer], **limits: Any) -> Outcome:
    """Run the stage over `answers` with the fakes in place of MiniLM and the tokenizer."""
    files, settings = write_inputs(root, answers), strict_settings(**limits)
    real = validate.find_probes(settings, files)
    validate.run(settings, files, Probes(fake_token_lengths, fake_similarity, real.find_leak, real.find_fault))
    return read_outcome(files)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """`stage(answers, **limits)`; Data Docs are left out, they take the longest."""
    monkeypatch.setattr("components.validation.suites.Suites.write_docs", lambda *_: None)
    return lambda answers, **limits: run_stage(tmp_path, answers, **limits)


@pytest.fixture
def documented_stage(tmp_path: Path) -> Stage:
    """`stage` with its Data Docs."""
    return lambda answers, **limits: run_stage(tmp_path, answers, **limits)


@pytest.fixture
def answer() -> type[Answer]:
    """Makes a row that is accepted unless told otherwise."""
    return Answer


@pytest.fixture
def inputs(tmp_path: Path) -> Callable[[list[Answer]], Files]:
    """Writes the stage's inputs and says where they and the outputs are."""
    return lambda answers: write_inputs(tmp_path, answers)
