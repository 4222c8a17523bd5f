"""A project folder of a few drawings with every table that a method can ask for, made in a second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from components.core.settings import Settings
from components.core.tables import records
from components.core.tables.files import image_id
from components.core.tables.records import PAIRS
from components.core.tables.table import Table
from components.encoders.adapter.encoder import Encoder
from components.encoders.embed import run as embed
from components.training.data import TrainingFiles
from tests.support.params import every_method
from tests.support.shard_making import encoded
from tests.support.synthetic_training import WORDS

COUNTS = {"train": 120, "val": 12, "test": 1}
HELD_OUT = 12
SAMPLES = 2
"""Answers that each caption got."""


@dataclass(frozen=True)
class World:
    """Where everything is; `captions` are those of the training pairs by id."""

    folder: Path
    files: TrainingFiles
    captions: dict[str, str]


def world_settings(state: Path, **train: Any) -> Settings:
    """The repository's settings with small batches: six steps of sixteen rows."""
    raw = every_method()
    small = {"log_every": 1, "validate_every": 2, "validation_images": HELD_OUT}
    raw["train"] = {"checkpoint_dir": str(state), "precision": "fp32"} | small | train
    raw["embed"] = raw["embed"] | {"state": f"{state}-embed"}
    for entry in raw["methods"].values():
        entry |= {"batch_size": 16, "epochs": 1, "warmup_steps": 1, "accumulate": 1}
    return Settings.model_validate(raw)


def make_world(
    folder: Path, encoder: Encoder, settings: Settings, captions_each: int = 1, files: TrainingFiles | None = None
) -> World:
    """Pairs, validated tables, a base encoder and its embeddings, below `folder` by default.

    Every training image has `captions_each` pairs, which are not adjacent.
    """
    files = files or TrainingFiles(*(folder / name for name in ("base", "validated", "embeddings", "pairs", "models")))
    rng = np.random.default_rng(0)
    captions: dict[str, str] = {}
    for split, count in COUNTS.items():
        ids = [f"{split}-{row:03}" for row in range(count)]
        texts = [sentence(rng) for _ in ids]
        distinct = count // captions_each if split == "train" else count
        images = [drawing(rng) for _ in range(distinct)] * (count // distinct)
        columns = {"id": ids, "image_id": list(map(image_id, images)), "image": images, "caption": texts}
        PAIRS.write(files.pairs / f"{split}.parquet", {**columns, "facts": [None] * count})
        captions |= dict(zip(ids, texts, strict=True)) if split == "train" else {}
    for name, table in TABLES.items():
        table.write(files.validated / f"{name}.parquet", _rows(table, captions, rng))
    encoder.save(files.base)
    embed(settings, files.embeddings, files.pairs, files.base)
    return World(folder, files, captions)


NAMES = "paraphrases rewrites semclip_paraphrases negations negated_terms hard_negatives absences units differences"
TABLES: dict[str, Table] = {name: getattr(records, name.upper()) for name in [*NAMES.split(), "semclip_rows"]}


def _rows(table: Table, captions: dict[str, str], rng: np.random.Generator) -> dict[str, list[Any]]:
    ids = [pair for pair in captions for _ in range(SAMPLES)]
    others = [list(captions)[int(row)] for row in rng.permutation(len(captions)) for _ in range(SAMPLES)]
    columns: dict[str, list[Any]] = {"id": ids, "other_id": others, "sample": [*range(SAMPLES)] * len(captions)}
    columns |= {"caption": [captions[pair] for pair in ids], "other_caption": [captions[pair] for pair in others]}
    for field in table.schema:
        if field.nullable:
            columns[field.name] = [None] * len(ids)
        elif field.name not in columns:
            columns[field.name] = [0.5 if field.name.startswith("similarity") else sentence(rng) for _ in ids]
    return {name: columns[name] for name in table.schema.names}


def sentence(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, size=rng.integers(2, 9)))


def drawing(rng: np.random.Generator, size: int = 16) -> bytes:
    return encoded(Image.fromarray(rng.integers(0, 256, (size, size, 3), np.uint8)))
