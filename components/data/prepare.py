"""Stage `prepare`: image-caption pairs with splits, and the benchmark tables of the test split.

python -m components.data.prepare
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from components.core import folders
from components.core.checking import load_checked
from components.core.errors import InputError
from components.core.files import atomic_folder
from components.core.progress import track
from components.core.project import run_in_project
from components.core.records import PAIRS, SEMCLIP_ROWS, SPLITS
from components.core.settings import Settings
from components.core.table import Append
from components.core.training_columns import PREPARED
from components.data.leaks.guard import Guard
from components.data.source import Pair
from components.data.sources import find_source

_BLOCK = 1024
(TEXTS,) = PREPARED


def run(settings: Settings, pairs_folder: Path = folders.PAIRS, evaluation_folder: Path = folders.EVALUATION) -> None:
    """Write `<split>.parquet` for every split, one Parquet per benchmark table, and beside the pairs `leaks/`.

    Raises:
        InputError: the source is missing something or holds a row that cannot be used.
    """
    guard = Guard.of(settings.prepare)
    source = find_source(settings.prepare.source)
    pairs = track(source.pairs(settings), "prepare", source.total(settings), "pair")
    with atomic_folder(pairs_folder) as folder:
        test = _write_splits(guard.clean(pairs), folder)
    with atomic_folder(pairs_folder.with_name("leaks")) as folder:
        guard.write(folder)
    if guard.benchmarks is not None:
        print(f"prepare: {guard.counts().told}")
    with atomic_folder(evaluation_folder) as folder:
        for name, (table, rows) in source.evaluation(settings, test).items():
            table.write(folder / f"{name}.parquet", rows)


def _write_splits(pairs: Iterable[Pair], folder: Path) -> list[Pair]:
    """Write every split as its pairs come; memory holds a block of each, and the test pairs, which are returned.

    A pair with texts of its publisher may come again with others: it stays one pair, with as many rows of texts.
    """
    waiting: dict[str, list[Pair]] = {split: [] for split in SPLITS}
    seen: dict[bytes, str] = {}
    test = []
    with ExitStack() as files:
        append = {split: files.enter_context(PAIRS.writer(folder / f"{split}.parquet")) for split in SPLITS}
        texts = files.enter_context(TextRows(folder / f"{TEXTS}.parquet"))
        for pair in pairs:
            key = bytes.fromhex(pair.id)
            again = key in seen
            if seen.setdefault(key, pair.split) != pair.split:
                raise InputError(f"pair {pair.id} ('{pair.caption[:60]}') is in two splits: remove the duplicate")
            if pair.split == "train":
                texts.add(pair)
            if again and pair.paraphrase:
                continue
            if pair.split == "test":
                test.append(pair)
            block = waiting[pair.split]
            block.append(pair)
            if len(block) == _BLOCK:
                append[pair.split](_table(block))
                block.clear()
        for split, block in waiting.items():
            append[split](_table(block))
    return test


def _table(pairs: list[Pair]) -> pa.Table:
    return pa.table({name: [getattr(pair, name) for pair in pairs] for name in PAIRS.schema.names}, schema=PAIRS.schema)


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


if __name__ == "__main__":
    run_in_project(lambda: run(load_checked()))
