"""From a method's columns to the source of its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.progress import track
from components.core.records import PAIRS
from components.core.training_columns import IMAGES
from components.encoders.adapter.images import decode
from components.encoders.adapter.texts.tokens import Tokenizer
from components.methods.contract.neighbours import Neighbours
from components.methods.contract.visits import Visits
from components.training.rows.examples import IMAGE_IDS, Columns
from components.training.rows.neighbours import OtherImages, Vectors, nearest, nearest_among
from components.training.rows.sampler import Rows, Sampler, groups_of
from components.training.rows.table_source import TableSource
from components.training.rows.token_cache import cached_tokens

_MOST_PIXELS = 8e9
"""Bytes of decoded images that are held in memory."""


@dataclass(frozen=True)
class Images:
    """The images that rows name: cached features of a frozen image tower, or files to decode.

    Attributes:
        ids: the pairs in the order of `features` and of the table `pairs`.
        image_ids: the images of these pairs.
        pairs: table with the encoded images; only read when pixels are wanted.
        size: of the image tower's input, in pixels.
        features: unit image features `[images, dim]`; None when the image tower trains.
        norms: the lengths that raw features have, `[images]`.
        neighbours_by: unit image features that say which images look alike, `[images, dim]`.
        others: images of another table that neighbours are looked for among; None for the rows' own.
    """

    ids: list[str]
    image_ids: list[str]
    pairs: Path
    size: int
    features: Vectors | None = None
    norms: Vectors | None = None
    neighbours_by: Vectors | None = None
    others: OtherImages | None = None


@dataclass(frozen=True)
class Wanted:
    """What the loop is to get of every row.

    Attributes:
        columns: the columns that losses read.
        draws: made-up column -> the columns that it is drawn from, with their shares.
    """

    columns: frozenset[str]
    draws: Mapping[str, Mapping[str, float]]

    @property
    def joined(self) -> frozenset[str]:
        """The columns that the tables must hold."""
        drawn = {column for shares in self.draws.values() for column in shares}
        return frozenset((self.columns - set(self.draws)) | drawn)


def table_source(
    rows: pd.DataFrame,
    wanted: Wanted,
    images: Images,
    tokenizer: Tokenizer,
    batch_size: int,
    seed: int,
    cache: Path,
    world: World | None = None,
    visits: Visits = "images",
    near: int = Neighbours.count,
) -> TableSource:
    """A source over `rows`, which have been joined already and have the columns of `with_image_ids`.

    Args:
        batch_size: of the global batch.
        cache: folder of token files.
        visits: what an epoch visits once.
        near: how many nearest images a neighbour is drawn from.

    Raises:
        InputError: a row's image is unknown or cannot be decoded, or the ranks cannot share the batch.
    """
    world = world or World()
    world.share(batch_size)
    columns = Columns.of(wanted.joined)
    tokens = {
        name: cached_tokens(rows[name].tolist(), tokenizer, tokenizer.context_length, tokenizer.identity, cache)
        for name in columns.texts
    }
    places = {name: _places(rows[IMAGES[name]].tolist(), images.ids) for name in columns.images}
    about = [_places(rows[pair].tolist(), images.ids) for pair in IMAGE_IDS if pair in rows]
    shown = _first_places(rows["image_id"].tolist(), images.image_ids)
    neighbours = _neighbours(images, shown, near) if columns.neighbours else None
    pixels, at = None, places
    if images.features is None and places:
        once = {name: _first_places(rows[IMAGE_IDS[IMAGES[name]]].tolist(), images.image_ids) for name in places}
        pixels, at = _decoded(images, once)
    return TableSource(
        sampler=Sampler(groups_of(visits, shown, about), batch_size, seed),
        names=rows["id"].tolist(),
        tokens=tokens,
        lengths={name: tokenizer.lengths(np.asarray(column)) for name, column in tokens.items()},
        images=at,
        features=images.features,
        norms=images.norms,
        pixels=pixels,
        wanted=wanted.columns,
        draws=wanted.draws,
        neighbours=neighbours,
        others=images.others,
        rank=world.rank,
        ranks=world.size,
    )


def _neighbours(images: Images, shown: Rows, near: int) -> Rows | None:
    if images.neighbours_by is None:
        return None
    if images.others is None:
        return nearest(images.neighbours_by, shown, near)
    return nearest_among(images.neighbours_by, shown, images.image_ids, images.others, near)


def _places(ids: Sequence[str], known: Sequence[str]) -> Rows:
    position = {pair: row for row, pair in enumerate(known)}
    missing = [pair for pair in ids if pair not in position]
    if missing:
        raise InputError(f"pair {missing[0]} has no image embedding: run `dvc repro embed`")
    return np.array([position[pair] for pair in ids], dtype=np.int64)


def _first_places(image_ids: Sequence[str], known: Sequence[str]) -> Rows:
    """Where each image first is among the `known`, so that an image with several captions has one place."""
    first = {known[row]: row for row in reversed(range(len(known)))}
    return np.array([first[image] for image in image_ids], dtype=np.int64)


def _decoded(images: Images, places: Mapping[str, Rows]) -> tuple[Tensor, dict[str, Rows]]:
    """uint8 pixels `[images, 3, size, size]` of the images that are used, and each row's place among them."""
    used = np.unique(np.concatenate(list(places.values())))
    if len(used) * 3 * images.size**2 > _MOST_PIXELS:
        raise InputError(
            f"{len(used)} images of {images.size} pixels do not fit into memory: write shards "
            "(`python -m components.cli.write_shards --help`) and name them in train.shards"
        )
    encoded = PAIRS.take(images.pairs, used, ["id", "image"])
    ids, raw = encoded["id"].to_pylist(), encoded["image"].to_pylist()
    block = 512
    parts = [
        decode(raw[start : start + block], images.size, ids[start : start + block])
        for start in track(range(0, len(raw), block), "decode", -(-len(raw) // block), "block")
    ]
    return torch.cat(parts), {name: np.searchsorted(used, rows) for name, rows in places.items()}
