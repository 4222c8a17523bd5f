"""A project folder in the product's own layout, small enough that every stage takes a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import yaml

from components.encoders.adapter.encoder import Encoder
from tests.conftest import TINY
from tests.support.toy_world import make_world, world_settings

PLACES = {"base": "models/base", "validated": "data/validated", "embeddings": "data/embeddings", "pairs": "data/pairs"}


def make_trainable(folder: Path) -> None:
    """Pairs, validated tables, a base encoder and its embeddings where stage `train` looks for them."""
    torch.manual_seed(0)
    made = folder / "made"
    make_world(made, Encoder.create("base", "tiny", TINY, "test"), world_settings(folder / "state" / "train"))
    for name, place in PLACES.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (made / name).rename(folder / place)
    made.rmdir()


def write_params(folder: Path, raw: dict[str, Any]) -> None:
    """Write params.yaml."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
