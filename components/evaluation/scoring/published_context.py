"""An encoder and the files of one published benchmark, and the cache of image features on disk.

A SQLite file for each tower and preparation has two tables. `sources` maps a picture's name and stamp to the hash of
its prepared pixels, so that unchanged pictures are not decoded again. `features` maps that hash to the feature, so that
benchmarks with the same pictures share their features.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from more_itertools import chunked

from components.core.compute.metrics import Features
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.core.tables.ahead import mapped
from components.core.tables.files import content_hash
from components.data.test_sets.files import LazyPicture, TestSetFiles, picture_file
from components.encoders.adapter.images import Preparation
from components.encoders.embeddings import require_finite
from components.encoders.under_test import EncoderUnderTest, ImageEncoder, raw_encoder
from components.evaluation.scoring.context import Context

FOLDER = Path("state/image_features")
_WAIT_S = 60.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS features (picture BLOB PRIMARY KEY, feature BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS sources (source BLOB PRIMARY KEY, picture BLOB NOT NULL) WITHOUT ROWID",
)
_OF_SOURCES = "SELECT source, feature FROM sources JOIN features USING (picture) WHERE source"
_OF_PICTURES = "SELECT picture, feature FROM features WHERE picture"
_KEYS = 500
"""Keys in one query; SQLite takes at least 999."""
_AHEAD = 4
"""Batches decoded while one is embedded."""

Vector = npt.NDArray[np.float32]
NO_CHANGES: Mapping[str, Any] = MappingProxyType({})
"""Pictures are prepared as the image tower learned."""


@dataclass(frozen=True)
class ImageFeatures:
    """The cache of image features; deleting its folder only costs the time to compute them again.

    `folder` has one SQLite file per image tower and preparation, which processes may share.
    """

    folder: Path = FOLDER
    batch_size: int = 32
    threads: int = 4

    def of(
        self,
        under_test: EncoderUnderTest,
        pictures: Sequence[LazyPicture],
        changes: Mapping[str, Any] = NO_CHANGES,
        *,
        raw: bool = False,
    ) -> Features:
        """Features `[pictures, dim]`, of unit length unless `raw`.

        Args:
            changes: values of the preparation that replace those of the image tower.
        """
        encoder = under_test.encoder
        own = under_test.preparation
        if own is None or under_test.image_tower_sha256 is None or not isinstance(encoder, ImageEncoder):
            raise InputError(f"encoder '{under_test.name}' has no image tower: choose a text-only benchmark for it")
        embed = raw_encoder(under_test).raw_pixels if raw else encoder.embed_pixels
        preparation = own.changed(changes)
        kind = [*map(repr, sorted(changes.items())), *(["raw"] if raw else [])]
        # The tower's hash covers its own preparation.
        path = self.folder / f"{content_hash(under_test.image_tower_sha256, *kind)}.db"
        sources = [_key(f"{picture.name}\0{picture.stamp}".encode()) for picture in pictures]
        with _opened(path) as connection:
            known = _read(connection, _OF_SOURCES, sources)
            new = {source: one for source, one in zip(sources, pictures, strict=True) if source not in known}
            if new:
                with bar("embed images", len(new), "image") as progress:
                    for batch in chunked(self._decoded(new, preparation), self.batch_size):
                        known |= _embedded(connection, embed, under_test.name, batch, preparation if changes else None)
                        progress.update(len(batch))
        return np.stack([known[source] for source in sources])

    def _decoded(
        self, pictures: dict[bytes, LazyPicture], preparation: Preparation
    ) -> Iterator[tuple[bytes, str, npt.NDArray[np.uint8]]]:
        """Source key, name and pixels `[size, size, 3]` of each picture, decoded a few batches ahead."""
        ahead = -(-_AHEAD * self.batch_size // self.threads)
        decoded = mapped(lambda item: _pixels(item[1], preparation), pictures.items(), self.threads, ahead)
        return ((source, picture.name, pixels) for (source, picture), pixels in decoded)


def _pixels(picture: LazyPicture, preparation: Preparation) -> npt.NDArray[np.uint8]:
    try:
        with picture.open() as image:
            return preparation.fitted(image)
    except ValueError as error:
        raise InputError(f"image {picture.name} cannot be decoded ({error}): fetch it again") from None


def _embedded(
    connection: sqlite3.Connection,
    embed: Callable[[Any], Features],
    encoder: str,
    batch: Sequence[tuple[bytes, str, npt.NDArray[np.uint8]]],
    changed: Preparation | None,
) -> dict[bytes, Vector]:
    """Source key -> feature; features of new pixels are computed by `embed` and kept.

    Args:
        changed: a preparation that is not the tower's own, which `embed` applies itself.
    """
    import torch

    keys = {source: _key(pixels.tobytes()) for source, _, pixels in batch}
    features = _read(connection, _OF_PICTURES, list(keys.values()))
    new = {keys[source]: (name, pixels) for source, name, pixels in batch if keys[source] not in features}
    if new:
        tensor = torch.from_numpy(np.stack([pixels for _, pixels in new.values()])).permute(0, 3, 1, 2)
        vectors = embed(tensor if changed is None else changed.normalise(tensor))
        require_finite(vectors, encoder, "picture", [name for name, _ in new.values()])
        features |= dict(zip(new, vectors, strict=True))
    with connection:
        added = [(key, features[key].astype("<f4").tobytes()) for key in new]
        connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?)", added)
        connection.executemany("INSERT OR REPLACE INTO sources VALUES (?, ?)", list(keys.items()))
    return {source: features[key] for source, key in keys.items()}


def _key(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=20).digest()


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(sqlite3.connect(path, timeout=_WAIT_S)) as connection:
            for table in _TABLES:
                connection.execute(table)
            yield connection
    except sqlite3.Error as error:
        raise InputError(f"image features {path} cannot be used ({error}): delete the file") from None


def _read(connection: sqlite3.Connection, query: str, keys: Sequence[bytes]) -> dict[bytes, Vector]:
    """Key -> feature, without features that are not finite, which are then computed again."""
    found: dict[bytes, Vector] = {}
    for chunk in chunked(keys, _KEYS):
        rows = connection.execute(f"{query} IN ({','.join('?' * len(chunk))})", chunk)
        found |= {key: np.frombuffer(feature, dtype="<f4") for key, feature in rows}
    return {key: feature for key, feature in found.items() if np.isfinite(feature).all()}


@dataclass
class PublishedContext(TestSetFiles, Context):
    """One encoder and the files of one published benchmark.

    Attributes:
        seed: of every random draw.
        left_out: groups of metrics without values, each with the reason.
        lists: rows of texts that are written next to the results, by content: inputs of prompt tasks.
    """

    ks: tuple[int, ...] = (1, 5, 10)
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    image_features: ImageFeatures = field(default_factory=ImageFeatures)
    left_out: list[str] = field(default_factory=list)
    lists: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def images(
        self, pictures: Sequence[LazyPicture], changes: Mapping[str, Any] = NO_CHANGES, *, raw: bool = False
    ) -> Features:
        """Features `[pictures, dim]`, of unit length unless `raw`, from the cache if this image tower has seen them."""
        return self.image_features.of(self.under_test, pictures, changes=changes, raw=raw)

    def raw_texts(self, texts: Sequence[str]) -> Features:
        """Features `[texts, dim]` as the text tower returns them."""
        return raw_encoder(self.under_test).raw_texts(texts)

    def image_files(self, folder: str, names: Iterable[str], changes: Mapping[str, Any] = NO_CHANGES) -> Features:
        """`images` of the files `names` below the benchmark's `folder`; an `InputError` if one is missing."""
        return self.images([picture_file(self.folder / folder / name) for name in names], changes)

    def columns(self, rows: Sequence[Mapping[str, str]], *names: str) -> Iterator[Features]:
        """Unit features `[rows, dim]` of the texts in each of the columns `names`."""
        return (self.texts([row[name] for row in rows]) for name in names)
