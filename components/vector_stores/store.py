"""The declaration of a database of vectors, and its URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, urlsplit

import numpy as np
import numpy.typing as npt

from components.core.system.errors import InputError

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class StoreUrl:
    """A URL such as `qdrant://host:6333/images?vector=clip`.

    Attributes:
        options: the part behind `?`.
        shown: without a password, for messages and files.
    """

    parts: SplitResult
    options: Mapping[str, str]
    shown: str

    @classmethod
    def parse(cls, url: str, known: Sequence[str]) -> StoreUrl:
        """Parse a URL that may have the options `known`; raises InputError for others."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(set(options) - set(known)):
            raise InputError(f"--index: option '{unknown[0]}' is unknown: choose of {', '.join(known) or 'none'}")
        user, _, password = parts.netloc.rpartition("@")[0].partition(":")
        return cls(parts, options, url.replace(f"{user}:{password}@", f"{user}@", 1) if password else url)


@dataclass(frozen=True)
class Page:
    """Consecutive rows.

    Attributes:
        vectors: `[rows, dim]`.
        last: what `OpenStore.page` takes to read on behind these rows.
    """

    keys: Sequence[str]
    payloads: Sequence[Mapping[str, Any]]
    vectors: Matrix
    last: Any


class OpenStore(Protocol):
    """An open database; nothing is ever written to it."""

    def state(self) -> str:
        """Changes when rows are added or removed, as far as the database says."""
        ...

    def count(self) -> int:
        """The number of rows."""
        ...

    def page(self, after: Any, rows: int) -> Page:
        """Up to so many rows behind `after`, from the first one where it is None; no rows at the end."""
        ...


@dataclass(frozen=True)
class VectorStore:
    """A database of vectors.

    Attributes:
        package: its Python package, for `pip install`.
        example: a URL.
        options: of the URL.
        opened: opens it read-only. Raises InputError if the table is missing or has no vectors.
        faults: classes of errors with which its library fails.
    """

    package: str
    example: str
    options: Sequence[str]
    opened: Callable[[StoreUrl], AbstractContextManager[OpenStore]]
    faults: Callable[[], tuple[type[Exception], ...]]


def matrix(vectors: Sequence[Sequence[float] | None]) -> Matrix:
    """`[rows, dim]` of lists of one length; a missing vector becomes NaN.

    Raises:
        InputError: vectors have different lengths, or all are missing.
    """
    if not vectors:
        return np.empty((0, 0), np.float32)
    lengths = {len(vector) for vector in vectors if vector is not None}
    if len(lengths) > 1:
        raise InputError(
            f"vectors have {' and '.join(map(str, sorted(lengths)))} numbers: choose one kind with ?vector="
        )
    if not lengths:
        raise InputError(f"{len(vectors):,} rows in succession have no vector: choose another one with ?vector=")
    missing = [np.nan] * lengths.pop()
    return np.array([missing if vector is None else vector for vector in vectors], np.float32)
