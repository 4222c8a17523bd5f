"""The declaration of a database of vectors, and its URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, urlsplit

import numpy as np
import numpy.typing as npt

from components.core.system.errors import InputError, shown_address

Matrix = npt.NDArray[np.float32]
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:\d*)?")
_UNREADABLE = (
    "--index: the URL's host or port cannot be read: write it as {}, and / : ? # @ and % in a password as %2F %3A %3F "
    "%23 %40 and %25"
)


@dataclass(frozen=True)
class StoreUrl:
    """A URL such as `qdrant://host:6333/images?vector=clip`.

    Attributes:
        parts, options: the URL; its part behind `?`.
        shown: with the database's own options and without a password, for messages and files.
    """

    store: VectorStore
    parts: SplitResult
    options: Mapping[str, str]
    shown: str

    @classmethod
    def parse(cls, url: str, store: VectorStore) -> StoreUrl:
        """Parse a URL; raises InputError if it has no host and port, or options that the database does not have."""
        try:
            parts = urlsplit(url)
        except ValueError:
            raise InputError(_UNREADABLE.format(store.example)) from None
        if not all(_HOST.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")):
            raise InputError(_UNREADABLE.format(store.example))
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(set(options) - {*store.options, *store.library_options()}):
            raise InputError(f"--index: option '{unknown[0]}' is unknown: choose of {', '.join(store.options)}")
        own = "&".join(f"{name}={value}" for name, value in options.items() if name in store.options)
        return cls(store, parts, options, shown_address(url.partition("?")[0]) + (f"?{own}" if own else ""))


@dataclass(frozen=True)
class Page:
    """Consecutive rows.

    Attributes:
        keys, payloads: of the rows that have a vector.
        vectors: `[rows with a vector, dim]`.
        rows: the number of rows, with those that have no vector; 0 behind the last one.
        last: the argument of `OpenStore.page` for the rows behind these.
    """

    keys: Sequence[str]
    payloads: Sequence[Mapping[str, Any]]
    vectors: Matrix
    rows: int
    last: Any

    @classmethod
    def of(
        cls,
        keys: Sequence[str],
        payloads: Sequence[Mapping[str, Any]],
        vectors: Sequence[Sequence[float] | Matrix | None],
        last: Any,
    ) -> Page:
        """A page of rows, some of which may have no vector; raises as `require_one_length`."""
        given = [(row, vector) for row, vector in enumerate(vectors) if vector is not None]
        require_one_length({len(vector) for _, vector in given})
        matrix = np.array([vector for _, vector in given], np.float32) if given else np.empty((0, 0), np.float32)
        return cls([keys[row] for row, _ in given], [payloads[row] for row, _ in given], matrix, len(keys), last)


def require_one_length(lengths: Collection[int]) -> None:
    """Raise InputError if vectors have different lengths."""
    if len(lengths) > 1:
        numbers = " and ".join(map(str, sorted(lengths)))
        raise InputError(f"vectors have {numbers} numbers: choose one kind with vector=, or its rows with where=")


class OpenStore(Protocol):
    """An open database; nothing is ever written to it."""

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
        opened: opens it read-only. Raises InputError if the table is missing or has no vectors, or an option is wrong.
        faults: classes of errors with which its library fails.
        library_options: further options of the URL, which its library reads.
    """

    package: str
    example: str
    options: Sequence[str]
    opened: Callable[[StoreUrl], AbstractContextManager[OpenStore]]
    faults: Callable[[], tuple[type[Exception], ...]]
    library_options: Callable[[], Collection[str]] = tuple
