"""From joined rows, or columns in memory, to their batches: token ids, features or pixels of images, similar images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from components.core.compute.distributed import World
from components.core.compute.metrics import top_k
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.tables import NEIGHBOUR
from components.core.tables.arrays import TextColumn, mapped_array, rows_of, written_array
from components.core.tables.files import atomic_file, hash_of_all
from components.core.tables.records import PAIRS
from components.core.tables.training_columns import IMAGES
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.tokens import Tokenizer, Tokens
from components.training.methods.contract.method import Method, Neighbours, Optimisation
from components.training.rows.batches import (
    BatchPlan,
    CachedFeatures,
    DecodedImages,
    Sampler,
    TableSource,
    Texts,
    Vectors,
    groups_of,
)
from components.training.rows.tables import IMAGE_IDS, QueryLog, Rows

Columns = Mapping[str, Sequence[Any] | npt.NDArray[np.float32]] | pd.DataFrame
"""Texts, encoded pictures, or features of pictures `[rows, dim]`, by column."""
_MOST_PIXELS = 8e9
"""Bytes of decoded images that are held in memory."""


@dataclass(frozen=True)
class TableImages:
    """The images that rows name.

    Attributes:
        ids: the pairs in the order of the table `pairs`, and of the features.
        pairs: table with the encoded images; read only if the image tower trains.
        preparation: of the image tower's pictures.
        cached: features of a frozen image tower; None if the image tower trains.
        similar: unit image features that define similar images, `[images, dim]`.
        others: images of another table that neighbours come from; None for the rows' own.
    """

    ids: Sequence[str]
    image_ids: Sequence[str]
    pairs: Path
    preparation: Preparation
    cached: CachedFeatures | None = None
    similar: Vectors | None = None
    others: CachedFeatures | None = None


def table_source(
    rows: pd.DataFrame,
    images: TableImages,
    plan: BatchPlan,
    tokenizer: Tokenizer,
    cache: Path,
    labels: Mapping[str, Rows] | None = None,
) -> TableSource:
    """A source over `rows`, which are joined and have the columns of `with_image_ids`."""
    plan.world.share(plan.batch_size)
    bare = {column.removeprefix(NEIGHBOUR) for column in plan.joined}
    texts = {name: _texts(rows[name], tokenizer, cache) for name in sorted(bare - set(IMAGES))}
    places = {name: _places(rows[IMAGES[name]], images.ids) for name in sorted(bare & set(IMAGES))}
    pairs = [_places(rows[pair], images.ids) for pair in IMAGE_IDS if pair in rows]
    shown = _places(rows["image_id"], images.image_ids)
    neighbours = None
    if images.similar is not None and any(column.startswith(NEIGHBOUR) for column in plan.joined):
        neighbours = nearest(images.similar, shown, plan.near, images.image_ids, images.others)
    pictures: CachedFeatures | DecodedImages
    if images.cached is not None:
        pictures = images.cached
    else:
        pictures, places = _decoded(images, rows, list(places), plan)
    return TableSource(
        sampler=Sampler(groups_of(plan.visits, shown, pairs), plan.batch_size, plan.seed),
        columns=plan.columns,
        names=TextColumn(rows["id"]),
        texts=texts,
        images=places,
        shown=pictures,
        draws=plan.draws,
        neighbours=neighbours,
        others=images.others,
        log=QueryLog.read(images.pairs, rows["id"], weighted=plan.weighted),
        labels=labels or {},
        world=plan.world,
    )


def _decoded(
    images: TableImages, rows: pd.DataFrame, columns: Sequence[str], plan: BatchPlan
) -> tuple[DecodedImages, dict[str, Rows]]:
    """Pixels of the images that are used, and each row's place among them by image column."""
    if not columns:
        return DecodedImages(torch.empty(0)), {}
    places = {name: _places(rows[IMAGE_IDS[IMAGES[name]]], images.image_ids) for name in columns}
    used = np.unique(np.concatenate(list(places.values())))
    size = images.preparation.size
    if len(used) * 3 * size**2 > _MOST_PIXELS:
        raise InputError(
            f"{len(used)} images of {size} pixels do not fit into memory: write shards "
            "(`python -m components.cli.commands.write_shards --help`) and name them in train.shards"
        )
    encoded = PAIRS.take(images.pairs, used, ["id", *PICTURE])
    with Pictures() as pictures:
        ids, raw = encoded["id"].to_pylist(), pictures.of(encoded)
    block = 512
    parts = [
        images.preparation.decode(raw[start : start + block], ids[start : start + block])
        for start in track(range(0, len(raw), block), "decode", -(-len(raw) // block), "block")
    ]
    return DecodedImages(torch.cat(parts), plan.crops), {name: np.searchsorted(used, at) for name, at in places.items()}


def _places(ids: pd.Series[str], known: Sequence[str]) -> Rows:
    """The first place of each pair, or image, among the `known`, so that an image with several captions has one."""
    places = TextColumn(known).places(ids)
    for missing in ids[places < 0][:1]:
        raise InputError(f"pair {missing} has no image embedding: run `dvc repro embed`")
    return places


def nearest(
    features: Vectors,
    images: Rows,
    count: int = Neighbours.count,
    image_ids: Sequence[str] = (),
    others: CachedFeatures | None = None,
) -> Rows:
    """For each row, rows of its `count` most similar other images, `[rows, count]`; or, given `others`, rows of these.

    Args:
        features: unit image features `[images, dim]`.
        images: the image of each row, `[rows]`; equal images have equal numbers.
        image_ids: of the images of `features`; only needed for `others`.
    """
    distinct, first, inverse = np.unique(images, return_index=True, return_inverse=True)
    queries = np.ascontiguousarray(features[distinct])
    gallery, own, places = queries, np.arange(len(distinct)), first
    if others is not None:
        ids, places = np.unique(np.array(others.image_ids), return_index=True)
        gallery = np.ascontiguousarray(others.features[places])
        own = TextColumn(ids.tolist()).places([image_ids[image] for image in distinct.tolist()])
    if len(places) <= count:
        raise InputError(f"{len(places)} different images are too few to draw from {count} neighbours: add rows")
    best = top_k(queries, gallery, count + 1)
    itself = best == own[:, None]
    # Without the image itself, or without the last: images with equal features can push the image itself off the list.
    itself[~itself.any(axis=1), -1] = True
    rows: Rows = places[best[~itself].reshape(len(best), count)][inverse]
    return rows


_BLOCK = 4096
_SMALL = 20_000
"""Texts up to which tokenisation shows no progress."""


def _texts(column: pd.Series[str], tokenizer: Tokenizer, cache: Path) -> Texts:
    tokens = cached_tokens(TextColumn(column), tokenizer, tokenizer.context_length, tokenizer.identity, cache)
    rows = np.arange(len(tokens))
    blocks = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
    return Texts(tokens, np.concatenate([tokenizer.lengths(rows_of(tokens, block)) for block in blocks or [rows]]))


def cached_tokens(
    texts: Sequence[str], tokenise: Callable[[Sequence[str]], Tokens], context_length: int, identity: str, folder: Path
) -> Tokens:
    """Token ids `[texts, context_length]`, mapped from a file in `folder`, which is created if it is missing.

    Args:
        identity: of the tokenizer; together with the texts it names the file.
    """
    path = folder / f"{hash_of_all(chain((identity, str(context_length)), texts))[:32]}.npy"
    if not path.is_file():
        starts: Iterable[int] = range(0, len(texts), _BLOCK)
        if len(texts) > _SMALL:
            starts = track(starts, "tokenise", -(-len(texts) // _BLOCK), "block")
        with atomic_file(path) as temporary, written_array(temporary, np.int32, (len(texts), context_length)) as add:
            for start in starts:
                add(tokenise(list(texts[start : start + _BLOCK])))
    return mapped_array(path, "delete it and run the stage again")


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
