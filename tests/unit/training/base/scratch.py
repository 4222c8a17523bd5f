"""A tiny base that is trained from random weights on random drawings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from components.core.settings import Settings
from components.core.tables.records import PAIRS
from tests.conftest import TINY
from tests.support.toy_world import drawing, sentence


def write_pairs(folder: Path, facts: Sequence[str | None] = (None,) * 8, seed: int = 0) -> Path:
    """The table of training pairs with a pair for each of these facts; returns its path."""
    rng = np.random.default_rng(seed)
    ids, images = [f"train-{row}" for row in range(len(facts))], [drawing(rng) for _ in facts]
    columns = {"id": ids, "image_id": ids, "image": images, "caption": [sentence(rng) for _ in ids]}
    PAIRS.write(folder / "train.parquet", {**columns, "facts": list(facts)})
    return folder / "train.parquet"


def scratch_settings(raw: dict[str, Any], folder: Path, **scratch: Any) -> Settings:
    """Settings that train the tiny model from random weights, with checkpoints in `folder`."""
    (folder / "tiny.json").write_text(json.dumps(TINY))
    plan = {"epochs": 1, "batch_size": 4, "lr": 1e-3, "warmup_steps": 1, "weight_decay": 0.1} | scratch
    raw["base"] |= {"source": "scratch", "model": str(folder / "tiny.json"), "scratch": plan}
    raw["train"] |= {"checkpoint_dir": str(folder / "state"), "log_every": 1}
    return Settings.model_validate(raw)
