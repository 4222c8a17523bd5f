"""Image features of a benchmark's pictures, computed once for each image tower and kept on disk.

Lists of pictures are kept as files, and every picture by what it shows, so that benchmarks that share pictures share
their features.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from more_itertools import chunked

from components.benchmarks.encoding.context import EncoderUnderTest, ImageEncoder, RawEncoder
from components.benchmarks.encoding.pictures import CLIP, Picture, Preparation
from components.core.ahead import mapped
from components.core.errors import InputError
from components.core.files import atomic_file, content_hash
from components.core.metrics import Features
from components.core.progress import bar
from components.encoders.embeddings import non_finite_row, require_finite

_WAIT_S = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS features (picture BLOB PRIMARY KEY, feature BLOB NOT NULL) WITHOUT ROWID"
_ASKED = 500
"""Keys in one question; SQLite takes 999 and more."""


def picture_key(pixels: npt.NDArray[np.uint8]) -> bytes:
    """What tells decoded pixels `[size, size, 3]` from others."""
    return hashlib.blake2b(pixels.tobytes(), digest_size=20).digest()


class KnownPictures:
    """Features by `picture_key`; see `known_pictures`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def find(self, keys: Sequence[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
        """The features that are known among those of `keys`; those that are not finite are forgotten."""
        found: dict[bytes, npt.NDArray[np.float32]] = {}
        for asked in chunked(keys, _ASKED):
            marks = ",".join("?" * len(asked))
            query = f"SELECT picture, feature FROM features WHERE picture IN ({marks})"
            rows = self._connection.execute(query, asked)
            found |= {key: np.frombuffer(feature, dtype="<f4") for key, feature in rows}
        bad = [key for key, feature in found.items() if not np.isfinite(feature).all()]
        if bad:
            with self._connection:
                self._connection.executemany("DELETE FROM features WHERE picture = ?", [(key,) for key in bad])
        return {key: feature for key, feature in found.items() if key not in bad}

    def add(self, features: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        """Keep features `[dim]` for good; those that another process kept meanwhile stay."""
        rows = [(key, feature.astype("<f4").tobytes()) for key, feature in features.items()]
        with self._connection:
            self._connection.executemany("INSERT OR IGNORE INTO features VALUES (?, ?)", rows)


@contextmanager
def known_pictures(path: Path) -> Iterator[KnownPictures]:
    """What is known of one image tower: a SQLite file that processes may share; deleting it loses nothing but time.

    Raises:
        InputError: the file is damaged, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(sqlite3.connect(path, timeout=_WAIT_S)) as connection:
            connection.execute(_TABLE)
            yield KnownPictures(connection)
    except sqlite3.Error as error:
        raise InputError(f"image features {path} cannot be used ({error}): delete the file") from None


FOLDER = Path("state/image_features")
_AHEAD = 4
"""Batches decoded while one is embedded."""


@dataclass(frozen=True)
class ImageFeatures:
    """Where features are kept; deleting the folder costs only the time to compute them again.

    Attributes:
        folder: one file per image tower and list of pictures, and one per image tower of every picture it has seen.
        batch_size: pictures that go through the tower at once.
        threads: pictures that are decoded at once.
    """

    folder: Path = FOLDER
    batch_size: int = 32
    threads: int = 4

    def of(
        self,
        under_test: EncoderUnderTest,
        pictures: Sequence[Picture],
        title: str = "embed images",
        preparation: Preparation = CLIP,
        *,
        raw: bool = False,
    ) -> Features:
        """Features `[pictures, dim]`, of unit length unless `raw`; a damaged or non-finite kept file is made again.

        Raises:
            InputError: the encoder has no image tower, a picture cannot be decoded, or its feature is not finite.
        """
        encoder = under_test.encoder
        if under_test.image_tower_sha256 is None or not isinstance(encoder, ImageEncoder):
            raise InputError(f"encoder '{under_test.name}' has no image tower: choose a text-only benchmark for it")
        embed = raw_encoder(under_test).raw_pixels if raw else encoder.embed_pixels
        kind = [*([preparation.name] if preparation.name else []), *(["raw"] if raw else [])]
        tower = (under_test.image_tower_sha256, *kind)
        key = content_hash(*tower, *(part for one in pictures for part in (one.name, one.stamp)))
        path = self.folder / f"{key}.npy"
        kept = _kept(path, len(pictures))
        if kept is not None:
            return kept
        # The tower's hash covers the size it sees pictures at.
        with known_pictures(self.folder / f"{content_hash(*tower)}.db") as known:
            blocks: list[Features] = []
            with bar(title, len(pictures), "image") as progress:
                for shown, pixels in self._decoded(pictures, under_test.image_size, preparation):
                    blocks.append(_embedded(embed, known, under_test.name, shown, pixels, preparation))
                    progress.update(len(shown))
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, np.concatenate(blocks), allow_pickle=False)
        found: Features = np.load(path, mmap_mode="r", allow_pickle=False)
        return found

    def _decoded(
        self, pictures: Sequence[Picture], size: int, preparation: Preparation
    ) -> Iterator[tuple[Sequence[Picture], npt.NDArray[np.uint8]]]:
        """Pictures and their pixels `[batch, size, size, 3]`; a few batches of pictures are decoded ahead."""
        ahead = -(-_AHEAD * self.batch_size // self.threads)
        decoded = mapped(lambda one: _pixels(one, size, preparation), pictures, self.threads, ahead)
        for batch in chunked(decoded, self.batch_size):
            yield [one for one, _ in batch], np.stack([pixels for _, pixels in batch])


def raw_encoder(under_test: EncoderUnderTest) -> RawEncoder:
    """The encoder, where it also gives features as its towers do.

    Raises:
        InputError: it does not.
    """
    if not isinstance(under_test.encoder, RawEncoder):
        raise InputError(f"encoder '{under_test.name}' gives unit features alone: choose one of open_clip")
    return under_test.encoder


def _embedded(
    embed: Callable[[Any], Features],
    known: KnownPictures,
    name: str,
    shown: Sequence[Picture],
    pixels: npt.NDArray[np.uint8],
    preparation: Preparation,
) -> Features:
    """Features `[batch, dim]`, from `known` or by `embed` of the encoder called `name`, which `known` then has, too."""
    import torch

    keys = [picture_key(one) for one in pixels]
    features = known.find(keys)
    new = {key: row for row, key in enumerate(keys) if key not in features}
    if new:
        tensor = torch.from_numpy(pixels[list(new.values())]).permute(0, 3, 1, 2)
        vectors = embed(preparation.normalised(tensor))
        require_finite(vectors, name, "picture", [shown[row].name for row in new.values()])
        embedded = dict(zip(new, vectors, strict=True))
        known.add(embedded)
        features |= embedded
    return np.stack([features[key] for key in keys])


def _kept(path: Path, pictures: int) -> Features | None:
    """The features of a file, if it is there, whole and finite."""
    try:
        found: Features = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if len(found) == pictures and non_finite_row(found) is None else None


def _pixels(picture: Picture, size: int, preparation: Preparation) -> npt.NDArray[np.uint8]:
    try:
        with picture.open() as image:
            return preparation.fitted(image, size)
    except ValueError as error:
        raise InputError(f"image {picture.name} cannot be decoded ({error}): fetch it again") from None
