"""A project folder in the product's own layout, small enough that every stage takes a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import yaml

from components.encoders.adapter.encoder import Encoder
from components.training.data import TrainingFiles
from tests.conftest import TINY
from tests.support.toy_world import make_world, world_settings


def make_trainable(folder: Path) -> None:
    """Pairs, validated tables, a base encoder and its embeddings where stage `train` looks for them."""
    torch.manual_seed(0)
    places = ("models/base", "data/validated", "data/embeddings", "data/pairs", "models")
    encoder, settings = Encoder.create("base", "tiny", TINY, "test"), world_settings(folder / "state" / "train")
    make_world(folder, encoder, settings, files=TrainingFiles(*(folder / place for place in places)))


def write_params(folder: Path, raw: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
