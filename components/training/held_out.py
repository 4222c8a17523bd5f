"""Early metrics: loss and retrieval on training rows that are not trained on, into the tracked run."""

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
from components.core.tables.files import content_hash
from components.core.tables.text_column import TextColumn
from components.encoders.adapter.text_tower import text_features
from components.encoders.adapter.tokens import Tokenizer, trimmed
from components.training.engine.gradients import Objective, evaluate
from components.training.rows.batches import BatchSource, TableSource

RECALL_AT, OVERLAP_AT = 5, 10
Vectors = npt.NDArray[np.float32]


def choose_held_out(rows: pd.DataFrame, count: int, seed: int) -> frozenset[str]:
    """Ids of up to `count` images, and at most a tenth of all, to hold out: the same for all methods with these rows.

    An image's place in the draw follows from the smallest id of its pairs.

    Args:
        rows: with the columns `id` and `image_id`.
    """
    images = pa.table({name: TextColumn(rows[name]).arrow for name in ("image_id", "id")}).group_by("image_id")
    first = images.aggregate([("id", "min")])
    named = zip(TextColumn(first["image_id"]), TextColumn(first["id_min"]), strict=True)
    drawn = nsmallest(min(count, len(first) // 10), named, key=lambda one: content_hash(str(seed), one[1]))
    return frozenset(image for image, _ in drawn)


@dataclass(frozen=True)
class HeldOut:
    """Queries with their images.

    Attributes:
        captions: one text per image.
        paraphrases: another text of the same meaning per image, or None where there are none.
        gallery: gives unit image features `[images, dim]`, the queries' own images first and in order.
    """

    captions: list[str]
    paraphrases: list[str] | None
    gallery: Callable[[], Vectors]

    def score(self, model: Any, tokenizer: Tokenizer, device: str) -> dict[str, float]:
        """Text-to-image R@5 of the captions, and AO@10 of captions and paraphrases, in [0, 1]."""
        gallery = self.gallery()
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
    """What a run trains on and is watched on.

    Attributes:
        inputs: the files behind it, by name.
        held_out: queries for early retrieval metrics; None with too few rows.
        held_rows: the method's own columns of held-out rows, for the validation loss; None with too few rows.
        streamed: hash of the shards that it trains on, by the name `shards`; empty where it trains on tables.
    """

    source: BatchSource
    inputs: dict[str, Path]
    held_out: HeldOut | None
    held_rows: TableSource | None
    streamed: dict[str, str] = field(default_factory=dict)


@torch.no_grad()
def embed(model: Any, tokenizer: Tokenizer, texts: list[str], device: str, batch_size: int = 256) -> Vectors:
    """Unit text features `[texts, dim]`; unlike inference mode this may share modules with training."""
    tokens = tokenizer(texts)
    lengths = tokenizer.lengths(tokens)
    parts: list[Tensor] = []
    for start in range(0, len(texts), batch_size):
        rows = slice(start, start + batch_size)
        parts.append(F.normalize(text_features(model, trimmed(tokens[rows], lengths[rows]).to(device)), dim=-1).cpu())
    vectors: Vectors = torch.cat(parts).numpy()
    return vectors


DIRECTIONS = {"validation/loss": False, "validation/r_at_5": True, "validation/ao_at_10": True}
"""Early metric -> whether larger is better."""


def check_export(train: Train, data: Data) -> None:
    """Raise `InputError` when `train.select_checkpoint` names a metric that this run will not have."""
    if train.select_checkpoint == "last":
        return
    if train.validate_every is None:
        raise InputError(
            f"params.yaml: train.select_checkpoint '{train.select_checkpoint}' needs train.validate_every: give "
            f"it, or use 'last'"
        )
    known = set()
    if data.held_rows is not None:
        known.add("validation/loss")
    if data.held_out is not None:
        known.add("validation/r_at_5")
        if data.held_out.paraphrases is not None:
            known.add("validation/ao_at_10")
    if train.select_checkpoint not in known:
        raise InputError(
            f"params.yaml: train.select_checkpoint '{train.select_checkpoint}' has too few held-out rows: raise "
            f"train.validation_images, or use 'last'"
        )


def watch(
    data: Data, tokenizer: Tokenizer, log: Callable[[dict[str, float], int], None]
) -> Callable[[Objective, int], dict[str, float]] | None:
    """A function of objective and step that scores the weights as they are and logs it; None with nothing to score."""
    if data.held_out is None and data.held_rows is None:
        return None
    held_out, held_rows = data.held_out, data.held_rows

    def validate(objective: Objective, step: int) -> dict[str, float]:
        found: dict[str, float] = {}
        if held_rows is not None:
            # Always the epoch 0 of these rows, so that the values of a run can be compared.
            losses = evaluate(objective, next(held_rows.epoch(0)))
            found |= {f"validation/loss/{name}": float(value) for name, value in losses.items()}
            found["validation/loss"] = sum(found.values())
        if held_out is not None:
            found |= held_out.score(objective.model, tokenizer, objective.device)
        log(found, step)
        return found

    return validate
