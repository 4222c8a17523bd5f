"""A source of batches over texts and images in memory, without tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.core.tables import NEIGHBOUR
from components.core.tables.training_columns import IMAGES
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.training.methods.contract.method import Method, Optimisation
from components.training.rows.batches import BatchPlan, CachedFeatures, DecodedImages, Sampler, TableSource, Texts
from components.training.rows.sources import nearest
from components.training.rows.tables import Rows

Columns = Mapping[str, Sequence[Any] | npt.NDArray[np.float32]] | pd.DataFrame
"""Texts, encoded pictures, or features of pictures `[rows, dim]`, by column."""


def source_in_memory(pairs: Columns, method: Method[Optimisation], encoder: Encoder, seed: int = 0) -> TableSource:
    """Batches of `pairs`, which have all columns that the method needs; equal pictures are one image.

    Args:
        encoder: the encoder that trains; its image tower embeds the pictures.
    """
    plan = BatchPlan.of(method, seed, World())
    near = any(column.startswith(NEIGHBOUR) for column in plan.columns)
    if method.neighbours.data is not None:
        raise InputError(f"method '{method.name}' searches the images of pairs: set distractor_data to None")
    wanted = {column.removeprefix(NEIGHBOUR) for column in (*method.needs, *(["image"] if near else []))}
    if missing := sorted(wanted - set(pairs)):
        raise InputError(f"method '{method.name}' needs the column '{missing[0]}' of pairs: add it")
    if len(counts := {len(pairs[name]) for name in wanted}) > 1:
        raise InputError(f"columns of pairs have {min(counts)} and {max(counts)} rows: give each the same number")
    rows = np.arange(counts.pop())
    tokens = {name: encoder.tokenizer(list(pairs[name])) for name in sorted(wanted - set(IMAGES))}
    columns = sorted(wanted & set(IMAGES))
    pictures, numbers = _distinct([picture for name in columns for picture in pairs[name]])
    images = dict(zip(columns, numbers.reshape(len(columns), len(rows)), strict=True))
    shown: CachedFeatures | DecodedImages
    if method.settings.image_tower != "frozen":
        shown = DecodedImages(encoder.sidecar.preparation.decode(pictures), plan.crops)
    elif pictures and not isinstance(pictures[0], bytes):
        shown = CachedFeatures(np.stack(pictures).astype(np.float32))
    else:
        shown = CachedFeatures(encoder.image_features(pictures))
    neighbours = None
    if near:
        features = shown.features if isinstance(shown, CachedFeatures) else encoder.image_features(pictures)
        neighbours = nearest(unit_rows(features)[0], images["image"], plan.near)
    return TableSource(
        sampler=Sampler(images.get("image", rows) if plan.visits == "images" else rows, plan.batch_size, seed),
        columns=plan.columns,
        names=[str(row) for row in rows],
        texts={name: Texts(ids, encoder.tokenizer.lengths(ids)) for name, ids in tokens.items()},
        images=images,
        shown=shown,
        draws=plan.draws,
        neighbours=neighbours,
    )


def _distinct(pictures: Sequence[Any]) -> tuple[list[Any], Rows]:
    """The different pictures, and the number of each of `pictures` among them."""
    keys = pd.Series([picture if isinstance(picture, bytes) else np.asarray(picture).tobytes() for picture in pictures])
    first = np.flatnonzero(~keys.duplicated())
    return [pictures[int(row)] for row in first], pd.factorize(keys)[0].astype(np.int64)
