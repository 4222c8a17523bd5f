"""One small data set and one checkpoint with random weights, which both sides of the training measurement read."""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from PIL import Image

from components.core.tables.records import PAIRS, SPLITS
from components.data.source import Pair, Sample
from components.data.world.alt_text import alt_text
from components.data.world.drawing import draw
from components.data.world.scenes import Scene, Split, draw_scenes
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from components.training.data import TrainingFiles

_RARE_WORD_SHARE = 0.04


@dataclass(frozen=True)
class Prepared:
    """Tables and base encoder of this project, open_clip_train's table of images, and the captions' mean length."""

    folder: Path
    files: TrainingFiles
    csv: Path
    tokens: float


def prepare(folder: Path, model: str, rows: int) -> Prepared:
    """Draw `rows` pairs of the synthetic dataset at the model's image size; save a model with random weights.

    Raises:
        InputError: the model is unknown.
    """
    torch.manual_seed(0)
    encoder = Encoder.create("base", model, model_config(model), "random")
    # A trained CLIP's value; with a lower one the loss of random features would hardly depend on them.
    encoder.model.logit_scale.data.fill_(math.log(100))
    files = TrainingFiles(*(folder / name for name in ("base", "validated", "embeddings", "pairs", "models")))
    encoder.save(files.base)
    size = encoder.sidecar.preparation.size
    # Stage `embed` reads every split.
    pairs = [
        Pair(split, Sample.of(_jpeg(draw(scene, f"0-{number}"), size)), caption)
        for number, (split, scene, caption) in enumerate(_described({"train": rows, "val": 1, "test": 1}))
    ]
    for split in SPLITS:
        table = pa.Table.from_pylist([pair.row() for pair in pairs if pair.split == split], schema=PAIRS.schema)
        PAIRS.write(files.pairs / f"{split}.parquet", table)
    trained = [pair for pair in pairs if pair.split == "train"]
    lengths = encoder.tokenizer.lengths(encoder.tokenizer([pair.caption for pair in trained]))
    return Prepared(folder, files, _write_csv(folder / "peer", trained), float(lengths.mean()))


def captions(rows: int) -> list[str]:
    """Alt-texts of the synthetic dataset."""
    return [caption for _, _, caption in _described({"train": rows, "val": 0, "test": 0})]


def _described(counts: dict[Split, int]) -> Iterator[tuple[Split, Scene, str]]:
    for number, (split, scene) in enumerate(draw_scenes(0, counts)):
        yield split, scene, alt_text(scene, random.Random(f"0-{number}"), _RARE_WORD_SHARE)


def _jpeg(png: bytes, size: int) -> bytes:
    """The drawing in the image tower's own size, so that both sides' resizing and cropping leaves it unchanged."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC).save(buffer, format="JPEG", quality=95)
    return buffer.getvalue()


def _write_csv(folder: Path, pairs: list[Pair]) -> Path:
    folder.mkdir()
    table = folder / "train.csv"
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t")
        writer.writerow(["filepath", "title"])
        for pair in pairs:
            assert pair.image.raw is not None, "drawn above"
            image = folder / f"{pair.id}.jpg"
            image.write_bytes(pair.image.raw)
            writer.writerow([image, pair.caption])
    return table
