"""Builds an index and appends to it. Only writing `index.json`, the last step, changes an index."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from filelock import FileLock, Timeout

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.core.compute.metrics import Features, Indices
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.core.tables.files import atomic_folder, file_hash
from components.index.facts import (
    AUTO,
    BUILD_AGAIN,
    EXACT,
    FACTS,
    PREPARATION,
    ROWS,
    STRUCTURES,
    VECTORS,
    ColumnKind,
    Facts,
    Segment,
    Structure,
    choose_kind,
    files_of,
    read_facts,
    refuse_link,
    rows_file,
    structure_file,
    vectors_file,
    write_facts,
)
from components.index.image_index import ImageIndex
from components.index.rows import fitted, further_columns, growing_rows, id_keys, schema_of
from components.index.search import check_rows, write_lists
from components.index.sources.source import ImageBlock, Opened
from components.index.tuning import measured
from components.index.vectors import Vectors, growing_array, not_unit

_LOCK = ".lock"
_SEGMENT = 1 << 20
"""Most rows of a segment."""
_Fresh = tuple[str, pa.Table, Features]
"""New rows: their origin for messages, the rows, and their vectors `[rows, dim]`."""


@dataclass
class Added:
    """The result of building or appending."""

    facts: Facts
    rows: int
    """Number of new images."""
    repeated: int
    """Number of rows of images that were already in the index; their captions are dropped."""
    unusable: list[str]
    """The reasons why pictures were left out."""


class _Known:
    """The images of an index so far, in eight bytes per image, and the rows that were left out."""

    def __init__(self, keys: npt.NDArray[np.uint64]) -> None:
        self.repeated, self.unusable = 0, list[str]()
        self._levels = [np.sort(keys)]

    def new(self, block: ImageBlock) -> Indices:
        """The rows of a block whose images are new; adds them to the known images."""
        self.unusable += block.unusable
        keys = id_keys(block.rows["image_id"])
        _, first = np.unique(keys, return_index=True)
        first.sort()
        kept = first[~self._has(keys[first])]
        self.repeated += len(keys) - len(kept)
        self._add(np.sort(keys[kept]))
        return kept.astype(np.int64)

    def _has(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(keys), np.bool_)
        for level in self._levels:
            if len(level):
                at = np.minimum(np.searchsorted(level, keys), len(level) - 1)
                found |= level[at] == keys
        return found

    def _add(self, keys: npt.NDArray[np.uint64]) -> None:
        """Add sorted keys; levels of similar length are merged, so there are few and each is sorted rarely."""
        self._levels.append(keys)
        while len(self._levels) > 1 and 2 * len(self._levels[-1]) >= len(self._levels[-2]):
            last = self._levels.pop()
            self._levels[-1] = np.sort(np.concatenate([self._levels[-1], last]))


def build(
    folder: Path,
    opened: Opened,
    kind: str = AUTO,
    encoder: EncoderUnderTest | None = None,
    queries: Sequence[str] | None = None,
    *,
    replace: bool = False,
) -> Added:
    """Write an index atomically; approximate search is tuned with `encoder` on `queries` or captions."""
    check_output(folder, replace=replace)
    known, columns = _Known(np.empty(0, np.uint64)), dict[str, ColumnKind]()
    with _alone(folder):
        check_output(folder, replace=replace)
        with atomic_folder(folder) as temporary:
            segments = _add_segments(temporary, opened, known, 0, columns)
            if not segments:
                raise InputError(f"no image to index{''.join(f' ({reason})' for reason in known.unusable[:1])}")
            facts = Facts(
                kind=choose_kind(kind, sum(segment.rows for segment in segments)), dim=opened.dim,
                image_tower_sha256=opened.image_tower_sha256, encoder=opened.encoder, columns=columns,
                segments=tuple(segments), preparation=PREPARATION,
            )  # fmt: skip
            facts = write_facts(temporary, measured(_searched(temporary, facts), encoder, queries))
    return Added(facts, facts.rows, known.repeated, known.unusable)


def append(
    folder: Path, opened: Opened, encoder: EncoderUnderTest | None = None, queries: Sequence[str] | None = None
) -> Added:
    """Add new images to an index; if this fails, the index is unchanged."""
    read_facts(folder)
    with _alone(folder):
        index = ImageIndex.open(folder)
        facts = index.facts
        check_source(folder, facts, opened)
        if encoder is not None:
            index.accept(encoder)
        if facts.kind != EXACT and encoder is None:
            raise InputError(f"kind '{facts.kind}' must be tuned on text queries again: give --encoder")
        _remove_strays(folder, facts)
        known = _Known(index.image_keys())
        try:
            segments = _add_segments(folder, opened, known, len(facts.segments), dict(facts.columns))
            if not segments:
                return Added(facts, 0, known.repeated, known.unusable)
            grown = facts.model_copy(update={"segments": (*facts.segments, *segments), "recalls": ()})
            facts = write_facts(folder, measured(_searched(folder, grown, facts.rows), encoder, queries))
        finally:
            _remove_strays(folder, facts)
    return Added(facts, sum(segment.rows for segment in segments), known.repeated, known.unusable)


def check_output(folder: Path, *, replace: bool) -> None:
    """Check that an index may be written to a folder."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} is not a folder: choose another for the index")
    if (folder / FACTS).is_file():
        if not replace:
            raise InputError(f"{folder} holds an index: use `cliptune index append`, or give --replace")
    elif folder.exists() and any(path.name != _LOCK for path in folder.iterdir()):
        raise InputError(f"{folder} holds files that do not belong to an index: choose another folder or empty it")


def check_source(folder: Path, facts: Facts, opened: Opened) -> None:
    """Check that the vectors of a source fit an index."""
    if opened.image_tower_sha256 != facts.image_tower_sha256:
        raise InputError(
            f"{folder} was built with image tower {facts.image_tower_sha256[:12]} (of '{facts.encoder}'), new images "
            f"with {opened.image_tower_sha256[:12]} (of '{opened.encoder}'): give an encoder with the index's tower"
        )
    if opened.dim != facts.dim:
        raise InputError(f"{folder} has vectors of {facts.dim} numbers, --from has {opened.dim}: correct --from")
    if opened.prepares and facts.preparation != PREPARATION:
        raise InputError(
            f"{folder} was built before pictures were turned upright by their EXIF data: {BUILD_AGAIN} to add pictures"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the index against other processes; a new folder that stays empty is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"another process changes {folder}: wait until it has finished") from None
    try:
        yield
    finally:
        if [path.name for path in folder.iterdir()] == [_LOCK]:
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def remeasure(folder: Path, encoder: EncoderUnderTest, queries: Sequence[str] | None = None) -> Facts:
    """Measure an encoder's recall and store it in the index's facts."""
    read_facts(folder)
    with _alone(folder):
        index = ImageIndex.open(folder)
        facts = measured(index, encoder, queries)
        return facts if facts == index.facts else write_facts(folder, facts)


def _add_segments(
    folder: Path, opened: Opened, known: _Known, first: int, columns: dict[str, ColumnKind]
) -> list[Segment]:
    """Write the new images of a source as segments from number `first` on; a new index fills its further columns."""
    segments: list[Segment] = []
    with bar("index", opened.total, "image") as progress:

        def fresh() -> Iterator[_Fresh]:
            for block in opened.blocks():
                rows, vectors = _with_vectors(block, known)
                progress.update(block.rows.num_rows + len(block.unusable))
                if len(vectors):
                    yield block.where, rows, vectors

        waiting = fresh()
        while (block := next(waiting, None)) is not None:
            if not segments and first == 0:
                columns.update(further_columns(block[1]))
            number = first + len(segments)
            segments.append(_segment(folder, number, opened.dim, columns, chain([block], waiting)))
    return segments


def _with_vectors(block: ImageBlock, known: _Known) -> tuple[pa.Table, Features]:
    """A block's new rows and their vectors, without vectors that are zero or not finite."""
    new = known.new(block)
    rows, vectors = block.rows.take(new), block.vectors(new) if len(new) else np.empty((0, 1), np.float32)
    if len(bad := not_unit(vectors)):
        names = rows.column("name" if "name" in rows.column_names else "image_id").take(bad).to_pylist()
        known.unusable += [
            f"{block.where}: the vector of '{name}' is zero or not finite: compute it again" for name in names
        ]
        kept = np.delete(np.arange(len(vectors)), bad)
        rows, vectors = rows.take(kept), vectors[kept]
    return rows, vectors


def _segment(folder: Path, number: int, dim: int, columns: dict[str, ColumnKind], blocks: Iterable[_Fresh]) -> Segment:
    """Write a segment of the next blocks, until it is full."""
    vectors, rows, count = vectors_file(folder, number), rows_file(folder, number), 0
    for path in (vectors, rows):
        refuse_link(path)
    with ExitStack() as stack:
        add_vectors = stack.enter_context(growing_array(vectors, dim))
        add_rows = stack.enter_context(growing_rows(rows, schema_of(columns)))
        for where, table, unit in blocks:
            add_vectors(unit)
            add_rows(fitted(table, columns, where))
            count += len(unit)
            if count >= _SEGMENT:
                break
    return Segment(rows=count, vectors_sha256=file_hash(vectors), rows_sha256=file_hash(rows))


def _searched(folder: Path, facts: Facts, first: int = 0) -> ImageIndex:
    """The index with its file of approximate search; if it had one before, the rows from `first` on are new."""
    old = facts.structure
    if facts.kind != EXACT:
        check_rows(facts.rows)
        number = 0 if old is None else old.number + 1
        path = structure_file(folder, number)
        refuse_link(path)
        path.parent.mkdir(exist_ok=True)
        previous = None if old is None else structure_file(folder, old.number)
        write_lists(path, Vectors.open(folder, facts), previous, first)
        with path.open("rb") as written:
            os.fsync(written.fileno())
        structure = Structure(number=number, bytes=path.stat().st_size, sha256=file_hash(path))
        facts = facts.model_copy(update={"structure": structure, "effort": 0})
    return ImageIndex(folder, facts)


def _remove_strays(folder: Path, facts: Facts) -> None:
    """Remove the files of a killed process: those that `index.json` does not list."""
    for path in strays(folder, facts):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def strays(folder: Path, facts: Facts) -> list[Path]:
    """Files in an index's folders that do not belong to it."""
    listed = set(files_of(folder, facts))
    inside = (path for name in (VECTORS, ROWS, STRUCTURES) for path in sorted((folder / name).glob("*")))
    return [path for path in inside if path not in listed]


def left_over(folder: Path) -> list[Path]:
    """The `strays` of an index; empty while another process changes it and may use them."""
    try:
        with _alone(folder):
            return strays(folder, read_facts(folder))
    except (InputError, OSError):
        return []
