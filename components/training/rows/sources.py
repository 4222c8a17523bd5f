"""From joined rows to the source of their batches: texts as token ids, images by their places or by looking alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from components.core.arrays import mapped_array, rows_of, written_array
from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.files import atomic_file, hash_of_all
from components.core.metrics import top_k
from components.core.pictures import PICTURE, Pictures
from components.core.progress import bar, track
from components.core.records import PAIRS
from components.core.text_column import TextColumn
from components.core.training_columns import IMAGES
from components.encoders.adapter.images import decode
from components.encoders.adapter.tokens import Tokenizer, Tokens
from components.methods.contract.method import Neighbours, Visits
from components.training.rows.batches import OtherImages, Rows, Sampler, TableSource, Vectors, groups_of
from components.training.rows.examples import IMAGE_IDS, Columns
from components.training.rows.query_log import QueryLog

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

    ids: Sequence[str]
    image_ids: Sequence[str]
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
    weighted: bool = False,
    labels: Mapping[str, Rows] | None = None,
) -> TableSource:
    """A source over `rows`, which have been joined already and have the columns of `with_image_ids`.

    Args:
        batch_size: of the global batch.
        cache: folder of token files.
        visits: what an epoch visits once.
        near: how many nearest images a neighbour is drawn from.
        weighted: whether rows come with their pairs' weights, where these have any.
        labels: as in `TableSource`.

    Raises:
        InputError: a row's image is unknown or cannot be decoded, or the ranks cannot share the batch.
    """
    world = world or World()
    world.share(batch_size)
    columns = Columns.of(wanted.joined)
    tokens = {
        name: cached_tokens(TextColumn(rows[name]), tokenizer, tokenizer.context_length, tokenizer.identity, cache)
        for name in columns.texts
    }
    places = {name: _places(rows[IMAGES[name]], images.ids) for name in columns.images}
    about = [_places(rows[pair], images.ids) for pair in IMAGE_IDS if pair in rows]
    shown = _places(rows["image_id"], images.image_ids)
    neighbours = _neighbours(images, shown, near) if columns.neighbours else None
    pixels, at = None, places
    if images.features is None and places:
        once = {name: _places(rows[IMAGE_IDS[IMAGES[name]]], images.image_ids) for name in places}
        pixels, at = _decoded(images, once)
    return TableSource(
        sampler=Sampler(groups_of(visits, shown, about), batch_size, seed),
        names=TextColumn(rows["id"]),
        tokens=tokens,
        lengths={name: _lengths(column, tokenizer) for name, column in tokens.items()},
        images=at,
        features=images.features,
        norms=images.norms,
        pixels=pixels,
        wanted=wanted.columns,
        draws=wanted.draws,
        neighbours=neighbours,
        others=images.others,
        log=QueryLog.read(images.pairs, rows["id"], weighted=weighted),
        labels=labels or {},
        rank=world.rank,
        ranks=world.size,
    )


def _neighbours(images: Images, shown: Rows, near: int) -> Rows | None:
    if images.neighbours_by is None:
        return None
    if images.others is None:
        return nearest(images.neighbours_by, shown, near)
    return nearest_among(images.neighbours_by, shown, images.image_ids, images.others, near)


def _places(ids: pd.Series[str], known: Sequence[str]) -> Rows:
    """Where each pair, or image, first is among the `known`, so that an image with several captions has one place."""
    places = TextColumn(known).places(ids)
    for missing in ids[places < 0][:1]:
        raise InputError(f"pair {missing} has no image embedding: run `dvc repro embed`")
    return places


def _decoded(images: Images, places: Mapping[str, Rows]) -> tuple[Tensor, dict[str, Rows]]:
    """uint8 pixels `[images, 3, size, size]` of the images that are used, and each row's place among them."""
    used = np.unique(np.concatenate(list(places.values())))
    if len(used) * 3 * images.size**2 > _MOST_PIXELS:
        raise InputError(
            f"{len(used)} images of {images.size} pixels do not fit into memory: write shards "
            "(`python -m components.cli.write_shards --help`) and name them in train.shards"
        )
    encoded = PAIRS.take(images.pairs, used, ["id", *PICTURE])
    with Pictures() as pictures:
        ids, raw = encoded["id"].to_pylist(), pictures.of(encoded)
    block = 512
    parts = [
        decode(raw[start : start + block], images.size, ids[start : start + block])
        for start in track(range(0, len(raw), block), "decode", -(-len(raw) // block), "block")
    ]
    return torch.cat(parts), {name: np.searchsorted(used, rows) for name, rows in places.items()}


def nearest(features: Vectors, images: Rows, count: int = Neighbours.count) -> Rows:
    """For each row, rows of its `count` most similar other images, `[rows, count]`.

    Args:
        features: unit image features `[images, dim]`.
        images: the image of each row, `[rows]`, the same number wherever it is the same image.

    Raises:
        InputError: there are too few different images.
    """
    distinct, first, inverse = np.unique(images, return_index=True, return_inverse=True)
    _check(len(distinct), count)
    chosen = np.ascontiguousarray(features[distinct])
    best = top_k(chosen, chosen, count + 1)
    rows: Rows = first[_without(best, best == np.arange(len(distinct))[:, None])][inverse]
    return rows


def nearest_among(
    features: Vectors, images: Rows, image_ids: Sequence[str], others: OtherImages, count: int = Neighbours.count
) -> Rows:
    """For each row, the `count` most similar of `others`, `[rows, count]`; the row's own image is none of them.

    Args:
        features: unit image features `[images, dim]`.
        images: the image of each row, `[rows]`.
        image_ids: of the images of `features`.

    Raises:
        InputError: there are too few different images.
    """
    known, first = np.unique(np.array(others.image_ids), return_index=True)
    _check(len(known), count)
    distinct, inverse = np.unique(images, return_inverse=True)
    gallery = np.ascontiguousarray(others.features[first])
    best = top_k(np.ascontiguousarray(features[distinct]), gallery, count + 1)
    own = np.array([image_ids[image] for image in distinct.tolist()])
    rows: Rows = first[_without(best, known[best] == own[:, None])][inverse]
    return rows


def _without(best: Rows, itself: npt.NDArray[np.bool_]) -> Rows:
    """`best` without the place of each row that is `itself`, or without the last."""
    # An image with the same features may stand before the image itself, which is then not in the list at all.
    itself[~itself.any(axis=1), -1] = True
    return best[~itself].reshape(len(best), best.shape[1] - 1)


def _check(distinct: int, count: int) -> None:
    if distinct <= count:
        raise InputError(f"{distinct} different images are too few to draw from {count} neighbours: add rows")


def _lengths(tokens: Tokens, tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    rows = np.arange(len(tokens))
    blocks = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
    return np.concatenate([tokenizer.lengths(rows_of(tokens, block)) for block in blocks or [rows]])


_BLOCK = 4096
_SMALL = 20_000


def cached_tokens(
    texts: Sequence[str], tokenise: Callable[[Sequence[str]], Tokens], context_length: int, identity: str, folder: Path
) -> Tokens:
    """Token ids `[texts, context_length]`, mapped from `folder`; made there where they are missing.

    Args:
        identity: what the tokenizer is; with the texts it names the file.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / f"{hash_of_all(chain((identity, str(context_length)), texts))[:32]}.npy"
    if not path.is_file():
        _write(texts, tokenise, context_length, path)
    return mapped_array(path, "delete it and run the stage again, which makes it anew")


def _write(texts: Sequence[str], tokenise: Callable[[Sequence[str]], Tokens], context_length: int, path: Path) -> None:
    shape = (len(texts), context_length)
    with atomic_file(path) as temporary, written_array(temporary, np.int32, shape) as add:
        progress = bar("tokenise", len(texts), "text") if len(texts) > _SMALL else None
        for start in range(0, len(texts), _BLOCK):
            add(tokenise(list(texts[start : start + _BLOCK])))
            if progress is not None:
                progress.update(min(_BLOCK, len(texts) - start))
        if progress is not None:
            progress.close()
