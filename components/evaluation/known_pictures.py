"""Features of pictures by what they show, for one image tower: benchmarks that share pictures share their features."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.errors import InputError

_WAIT_S = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS features (picture BLOB PRIMARY KEY, feature BLOB NOT NULL) WITHOUT ROWID"
_ASKED = 500
"""Keys in one question; SQLite takes 999 and more."""


def picture_key(pixels: npt.NDArray[np.uint8]) -> bytes:
    """What tells decoded pixels `[size, size, 3]` from others."""
    return hashlib.blake2b(pixels.tobytes(), digest_size=20).digest()


class KnownPictures:
    """A SQLite file of features by `picture_key`, which processes may share; deleting it loses nothing but time.

    Args:
        path: the file of one image tower.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, keys: Sequence[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
        """The features that are known among those of `keys`.

        Raises:
            InputError: the file is damaged.
        """
        found: dict[bytes, npt.NDArray[np.float32]] = {}
        with self._opened() as connection:
            for start in range(0, len(keys), _ASKED):
                asked = keys[start : start + _ASKED]
                marks = ",".join("?" * len(asked))
                rows = connection.execute(f"SELECT picture, feature FROM features WHERE picture IN ({marks})", asked)
                found |= {key: np.frombuffer(feature, dtype="<f4") for key, feature in rows}
        return found

    def add(self, features: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        """Keep features `[dim]`; those that another process kept meanwhile stay.

        Raises:
            InputError: the file is damaged, or the disk is full.
        """
        rows = [(key, feature.astype("<f4").tobytes()) for key, feature in features.items()]
        with self._opened() as connection:
            connection.executemany("INSERT OR IGNORE INTO features VALUES (?, ?)", rows)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as connection, connection:
                connection.execute(_TABLE)
                yield connection
        except sqlite3.Error as error:
            raise InputError(f"image features {self._path} cannot be used ({error}): delete the file") from None
