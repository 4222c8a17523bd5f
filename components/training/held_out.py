"""Early metrics: loss and retrieval on held-out training rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor

from components.core.compute.metrics import average_overlap, top_k
from components.core.settings import Train
from components.core.system.errors import InputError
from components.core.tables.arrays import TextColumn
from components.core.tables.files import content_hash
from components.encoders.adapter.images import CLIP, Preparation
from components.encoders.adapter.text_tower import text_features
from components.encoders.adapter.tokens import Tokenizer, trimmed
from components.training.engine.gradients import Objective, evaluate
from components.training.rows.batches import TableSource

DIRECTIONS = {"validation/loss": False, "validation/r_at_5": True, "validation/ao_at_10": True}
"""Early metric -> whether larger is better."""
RECALL_AT, OVERLAP_AT = 5, 10
Vectors = npt.NDArray[np.float32]


def choose_held_out(rows: pd.DataFrame, count: int, seed: int) -> frozenset[str]:
    """Ids of up to `count` images, at most a tenth of all; the order of `rows` (`id`, `image_id`) does not matter.

    The draw of an image depends on `seed` and on the smallest id of its pairs.
    """
    images = pa.table({name: TextColumn(rows[name]).arrow for name in ("image_id", "id")}).group_by("image_id")
    first = images.aggregate([("id", "min")])
    named = zip(TextColumn(first["image_id"]), TextColumn(first["id_min"]), strict=True)
    drawn = nsmallest(min(count, len(first) // 10), named, key=lambda image: content_hash(str(seed), image[1]))
    return frozenset(image for image, _ in drawn)


@dataclass(frozen=True)
class HeldOut:
    """Captions of held-out images as queries.

    Attributes:
        paraphrases: one paraphrase of each caption; None without a table of paraphrases.
        gallery: unit image features `[images, dim]`, or pixels `[images, 3, size, size]`, uint8, if the image tower
            trains; the images of the queries come first, in their order.
        preparation: of the pixels.
    """

    captions: list[str]
    paraphrases: list[str] | None
    gallery: Tensor
    preparation: Preparation = CLIP

    @torch.no_grad()
    def vectors(self, model: Any, device: str) -> Vectors:
        """Unit features of the gallery, by the current image tower if it trains."""
        vectors: Vectors = self.gallery.numpy()
        if not self.gallery.is_floating_point():
            blocks = (self.preparation.normalise(block.to(device)) for block in torch.split(self.gallery, 256))
            parts = [F.normalize(model.encode_image(block).float(), dim=-1).cpu() for block in blocks]
            vectors = torch.cat(parts).numpy()
        return vectors

    def score(self, model: Any, tokenizer: Tokenizer, device: str) -> dict[str, float]:
        """Text-to-image R@5 of the captions, and AO@10 of captions and paraphrases, in [0, 1]."""
        gallery = self.vectors(model, device)
        captions = embed(model, tokenizer, self.captions, device)
        found = top_k(captions, gallery, min(OVERLAP_AT, len(gallery)))
        own = np.arange(len(captions))[:, None]
        scores = {f"validation/r_at_{RECALL_AT}": float((found[:, :RECALL_AT] == own).any(axis=1).mean())}
        if self.paraphrases is not None and len(gallery) >= OVERLAP_AT:
            others = top_k(embed(model, tokenizer, self.paraphrases, device), gallery, OVERLAP_AT)
            scores[f"validation/ao_at_{OVERLAP_AT}"] = float(average_overlap(found, others, OVERLAP_AT).mean())
        return scores


@dataclass(frozen=True)
class Data:
    """The inputs of a run, and its held-out rows.

    Attributes:
        held: ids of held-out images.
        held_out: queries for early retrieval metrics; None with too few rows, or without captions.
        held_rows: held-out rows with the method's columns, for the validation loss; None with too few rows.
        streamed: hashes of the shards and of the test sets, by name; empty without shards.
    """

    inputs: dict[str, Path]
    held: frozenset[str]
    held_out: HeldOut | None
    held_rows: TableSource | None
    streamed: dict[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> set[str]:
        """The early metrics that there are enough rows for."""
        queries = self.held_out
        have = self.held_rows is not None, queries is not None, queries is not None and queries.paraphrases is not None
        return {name for name, has in zip(DIRECTIONS, have, strict=True) if has}


@torch.no_grad()
def embed(model: Any, tokenizer: Tokenizer, texts: list[str], device: str, batch_size: int = 256) -> Vectors:
    """Unit text features `[texts, dim]`, without inference mode, whose tensors training could not use."""
    tokens = tokenizer(texts)
    lengths = tokenizer.lengths(tokens)
    parts: list[Tensor] = []
    for start in range(0, len(texts), batch_size):
        rows = slice(start, start + batch_size)
        parts.append(F.normalize(text_features(model, trimmed(tokens[rows], lengths[rows]).to(device)), dim=-1).cpu())
    vectors: Vectors = torch.cat(parts).numpy()
    return vectors


def check_export(train: Train, data: Data) -> None:
    """Raise `InputError` if the run will not have the metric `train.select_checkpoint`."""
    metric = train.select_checkpoint
    if metric == "last":
        return
    where = f"params.yaml: train.select_checkpoint '{metric}'"
    if train.validate_every is None:
        raise InputError(f"{where} needs train.validate_every: set it, or use 'last'")
    if metric not in data.metrics:
        raise InputError(f"{where} has too few held-out rows: raise train.validation_images, or use 'last'")


def watch(
    data: Data, tokenizer: Tokenizer, log: Callable[[dict[str, float], int], None]
) -> Callable[[Objective, int], dict[str, float]] | None:
    """A function that scores the current weights at a step and logs the metrics; None without held-out rows."""
    if not data.metrics:
        return None

    def validate(objective: Objective, step: int) -> dict[str, float]:
        metrics: dict[str, float] = {}
        if data.held_rows is not None:
            # Always epoch 0, so that the losses of all steps are of the same texts.
            batches = [(len(batch.ids), evaluate(objective, batch)) for batch in data.held_rows.epoch(0)]
            rows = sum(count for count, _ in batches)
            for name in batches[0][1]:
                mean = sum(count * float(losses[name]) for count, losses in batches) / rows
                metrics[f"validation/loss/{name}"] = mean
            metrics["validation/loss"] = sum(metrics.values())
        if data.held_out is not None:
            metrics |= data.held_out.score(objective.model, tokenizer, objective.device)
        log(metrics, step)
        return metrics

    return validate
