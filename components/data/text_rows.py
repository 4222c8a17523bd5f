"""The texts that a publisher gives its captions, as a table beside the pairs."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType

from components.core.records import SEMCLIP_ROWS
from components.core.table import Append
from components.data.source import Pair

_BLOCK = 1024


class TextRows(AbstractContextManager["TextRows"]):
    """Writes `SEMCLIP_ROWS` of the pairs that have both texts, whole or not at all; no file where none has any."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, ExitStack()
        self._append: Append | None = None
        self._samples: Counter[bytes] = Counter()
        self._waiting: list[tuple[str, int, str, str, str]] = []

    def add(self, pair: Pair) -> None:
        """Take the texts of a pair; one that comes again has one more sample."""
        if not (pair.paraphrase and pair.negation):
            return
        key = bytes.fromhex(pair.id)
        self._waiting.append((pair.id, self._samples[key], pair.caption, pair.paraphrase, pair.negation))
        self._samples[key] += 1
        if len(self._waiting) == _BLOCK:
            self._write()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if error is None:
                self._write()
            else:
                self._file.__exit__(kind, error, trace)

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._append is None:
            self._append = self._file.enter_context(SEMCLIP_ROWS.writer(self._path))
        columns = zip(*self._waiting, strict=True)
        self._append({name: list(column) for name, column in zip(SEMCLIP_ROWS.schema.names, columns, strict=True)})
        self._waiting.clear()
