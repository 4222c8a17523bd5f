"""Features of pictures by what they show, for one image tower: benchmarks that share pictures share their features."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from more_itertools import chunked

from components.core.errors import InputError

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
