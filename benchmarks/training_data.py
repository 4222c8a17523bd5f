"""One small data set and one checkpoint with random weights that both sides of the training benchmark read."""

from __future__ import annotations

import csv
import io
import math
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from PIL import Image

from components.core.tables.records import PAIRS, SPLITS
from components.data.source import Pair
from components.data.world.alt_text import alt_text
from components.data.world.description.scenes import Split, draw_scenes
from components.data.world.drawing import draw
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from components.encoders.adapter.sidecar import WEIGHTS
from components.training.data import TrainingFiles

_RARE_WORD_SHARE = 0.04


@dataclass(frozen=True)
class Prepared:
    """What both sides read.

    Attributes:
        folder: where everything is.
        files: this project's tables and base encoder.
        csv: open_clip_train's table of image files and captions.
        weights: the checkpoint, the same file for both.
        lengths: tokens of each caption with start and end token, `[rows]`.
        context: tokens that a text is padded to by open_clip.
    """

    folder: Path
    files: TrainingFiles
    csv: Path
    weights: Path
    lengths: npt.NDArray[np.int64]
    context: int


def prepare(folder: Path, model: str, rows: int, seed: int) -> Prepared:
    """Draw `rows` pairs of the synthetic dataset at the model's image size; save a model with random weights.

    Raises:
        InputError: the model is unknown.
    """
    torch.manual_seed(seed)
    encoder = Encoder.create("base", model, model_config(model), "random")
    # A trained CLIP's value; with a lower one the loss of random features would hardly depend on them.
    encoder.model.logit_scale.data.fill_(math.log(100))
    files = TrainingFiles(
        folder / "base", folder / "validated", folder / "embeddings", folder / "pairs", folder / "models"
    )
    encoder.save(files.base)
    pairs = _pairs(rows, encoder.sidecar.preparation.size, seed)
    for split in SPLITS:
        table = pa.Table.from_pylist([pair.row() for pair in pairs[split]], schema=PAIRS.schema)
        PAIRS.write(files.pairs / f"{split}.parquet", table)
    return Prepared(
        folder=folder,
        files=files,
        csv=_write_csv(folder / "peer", pairs["train"]),
        weights=files.base / WEIGHTS,
        lengths=encoder.tokenizer.lengths(encoder.tokenizer([pair.caption for pair in pairs["train"]])),
        context=encoder.tokenizer.context_length,
    )


def captions(rows: int, seed: int) -> list[str]:
    """Alt-texts of the synthetic dataset."""
    drawn = draw_scenes(seed, {"train": rows, "val": 0, "test": 0})
    return [alt_text(scene, random.Random(f"{seed}-{row}"), _RARE_WORD_SHARE) for row, (_, scene) in enumerate(drawn)]


def _pairs(rows: int, size: int, seed: int) -> Mapping[str, list[Pair]]:
    # The stage that embeds images does so for every split, so the two unused splits get one image each.
    wanted: dict[Split, int] = {"train": rows, "val": 1, "test": 1}
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for number, (split, scene) in enumerate(draw_scenes(seed, wanted)):
        caption = alt_text(scene, random.Random(f"{seed}-{number}"), _RARE_WORD_SHARE)
        pairs[split].append(Pair(split, _jpeg(draw(scene, f"{seed}-{number}"), size), caption))
    return {split: pairs[split][:count] for split, count in wanted.items()}


def _jpeg(png: bytes, size: int) -> bytes:
    """The drawing in the image tower's own size, so that both sides' resizing and cropping leaves it unchanged."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC).save(buffer, format="JPEG", quality=95)
    return buffer.getvalue()


def _write_csv(folder: Path, pairs: list[Pair]) -> Path:
    folder.mkdir(parents=True)
    table = folder / "train.csv"
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t")
        writer.writerow(["filepath", "title"])
        for pair in pairs:
            image = folder / f"{pair.id}.jpg"
            image.write_bytes(pair.image)
            writer.writerow([image, pair.caption])
    return table
