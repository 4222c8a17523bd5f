"""Builds an index and adds to one. What `index.json` names is the index: until it is written, nothing has changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from filelock import FileLock, Timeout

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.errors import InputError
from components.core.files import atomic_folder, file_hash
from components.core.metrics import Features, Indices
from components.core.progress import bar
from components.index.facts import (
    FACTS,
    ROWS,
    STRUCTURES,
    VECTORS,
    ColumnKind,
    Facts,
    Segment,
    Structure,
    files_of,
    read_facts,
    refuse_link,
    rows_file,
    structure_file,
    vectors_file,
    write_facts,
)
from components.index.image_index import ImageIndex
from components.index.kinds import AUTO, choose_kind, find_kind
from components.index.rows import fitted, further_columns, growing_rows, id_keys, schema_of
from components.index.sources.source import Block, Opened
from components.index.tuning import measured, needs_queries
from components.index.vectors import Vectors, growing_array, not_unit

_LOCK = ".lock"
_SEGMENT = 1 << 20
"""Rows of the longest segment."""
_Fresh = tuple[str, pa.Table, Features]
"""Where new rows are from, the rows, and their vectors `[rows, dim]`."""


@dataclass
class Added:
    """What building or adding did.

    Attributes:
        facts: of the index as it is now.
        rows: images that are new in it.
        repeated: rows of images that it has already; their captions are not kept.
        unusable: why pictures were left out.
    """

    facts: Facts
    rows: int
    repeated: int
    unusable: list[str]


class _Known:
    """The images of an index so far, and what was not added to them; eight bytes for each image."""

    def __init__(self, keys: npt.NDArray[np.uint64]) -> None:
        self.repeated, self.unusable = 0, list[str]()
        self._levels = [np.sort(keys)]

    def new(self, block: Block) -> Indices:
        """The rows of a block whose images are seen for the first time; they are known from now on."""
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
        """Keep sorted keys; levels of like length become one, so that there are few and each is sorted seldom."""
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
    """Write an index, whole or not at all.

    Args:
        kind: a file of `components/index/kinds`, or `auto`.
        encoder: embeds the queries that an approximate kind is tuned on.
        queries: these; captions of the images where none are given.
        replace: take the place of an index that is there.

    Raises:
        InputError: `folder` holds something already, another process changes it, the source cannot be read or has no
            image, or the kind cannot be had or tuned.
    """
    check_output(folder, replace=replace)
    with _alone(folder):
        check_output(folder, replace=replace)
        return _build(folder, opened, kind, encoder, queries)


def _build(
    folder: Path, opened: Opened, kind: str, encoder: EncoderUnderTest | None, queries: Sequence[str] | None
) -> Added:
    with atomic_folder(folder) as temporary:
        known, columns = _Known(np.empty(0, np.uint64)), dict[str, ColumnKind]()
        segments = _add_segments(temporary, opened, known, 0, columns)
        if not segments:
            raise InputError(f"there is no image to index{_first(known.unusable)}")
        rows = sum(segment.rows for segment in segments)
        chosen = choose_kind(kind, rows)
        facts = Facts(
            kind=chosen, dim=opened.dim, image_tower_sha256=opened.image_tower_sha256, encoder=opened.encoder,
            columns=columns, segments=tuple(segments),
        )  # fmt: skip
        facts = write_facts(temporary, measured(_searched(temporary, facts), encoder, queries))
    return Added(facts, rows, known.repeated, known.unusable)


def append(
    folder: Path, opened: Opened, encoder: EncoderUnderTest | None = None, queries: Sequence[str] | None = None
) -> Added:
    """Add the images that an index has not; if it does not come to its end, the index is what it was.

    Raises:
        InputError: as `build` and `ImageIndex.open`; or vectors of another image tower are to be added, or another
            process adds to the index.
    """
    read_facts(folder)
    with _alone(folder):
        index = ImageIndex.open(folder)
        facts = index.facts
        check_source(folder, facts, opened)
        if encoder is not None:
            index.accept(encoder)
        if needs_queries(facts.kind) and encoder is None:
            raise InputError(f"kind '{facts.kind}' is tuned on text queries again: give --encoder")
        _remove_strays(folder, facts)
        known = _Known(index.image_keys())
        try:
            segments = _add_segments(folder, opened, known, len(facts.segments), dict(facts.columns))
            if not segments:
                return Added(facts, 0, known.repeated, known.unusable)
            grown = facts.model_copy(update={"segments": (*facts.segments, *segments), "recalls": ()})
            grown = write_facts(folder, measured(_searched(folder, grown, facts.rows), encoder, queries))
            facts = grown
        finally:
            _remove_strays(folder, facts)
    return Added(facts, sum(segment.rows for segment in segments), known.repeated, known.unusable)


def check_output(folder: Path, *, replace: bool) -> None:
    """Refuse a folder that is not to be written.

    Raises:
        InputError: it is an index that nobody asked to replace, or holds something else.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} is no folder: name another for the index")
    if (folder / FACTS).is_file():
        if not replace:
            raise InputError(f"{folder} holds an index: use `cliptune index append`, or give --replace")
    elif folder.exists() and any(path.name != _LOCK for path in folder.iterdir()):
        raise InputError(f"{folder} holds something that is no index: name another folder or empty it")


def check_source(folder: Path, facts: Facts, opened: Opened) -> None:
    """Refuse to add vectors of another tower.

    Raises:
        InputError: they are another tower's, or have another width.
    """
    if opened.image_tower_sha256 != facts.image_tower_sha256:
        raise InputError(
            f"{folder} was made by image tower {facts.image_tower_sha256[:12]} (of '{facts.encoder}'), what is to be "
            f"added by {opened.image_tower_sha256[:12]} (of '{opened.encoder}'): give an encoder with the index's tower"
        )
    if opened.dim != facts.dim:
        raise InputError(f"{folder} has vectors of {facts.dim} numbers, --from has {opened.dim}: correct --from")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep every other process from changing the index meanwhile; a new folder that gets no index is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"another process changes {folder}: wait for its end") from None
    try:
        yield
    finally:
        if [path.name for path in folder.iterdir()] == [_LOCK]:
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def remeasure(folder: Path, encoder: EncoderUnderTest, queries: Sequence[str] | None = None) -> Facts:
    """Measure an encoder's recall and keep it in the index's facts.

    Raises:
        InputError: as `components.index.tuning.measured` and `ImageIndex.open`.
    """
    read_facts(folder)
    with _alone(folder):
        index = ImageIndex.open(folder)
        facts = measured(index, encoder, queries)
        return facts if facts == index.facts else write_facts(folder, facts)


def _add_segments(
    folder: Path, opened: Opened, known: _Known, first: int, columns: dict[str, ColumnKind]
) -> list[Segment]:
    """Write the new images of a source as segments from number `first` on.

    Args:
        columns: the index's further columns; those of the first images where it has no images yet.
    """
    found: list[Segment] = []
    with bar("index", opened.total, "image") as progress:

        def fresh() -> Iterator[_Fresh]:
            for block in opened.blocks():
                rows, vectors = _with_vectors(block, known)
                progress.update(block.rows.num_rows + len(block.unusable))
                if len(vectors):
                    yield block.where, rows, vectors

        waiting = fresh()
        while (one := next(waiting, None)) is not None:
            if not found and first == 0:
                columns.update(further_columns(one[1]))
            found.append(_segment(folder, first + len(found), opened.dim, columns, one, waiting))
    return found


def _with_vectors(block: Block, known: _Known) -> tuple[pa.Table, Features]:
    """A block's new rows and their vectors; those that no search can use are left out."""
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


def _segment(
    folder: Path,
    number: int,
    dim: int,
    columns: dict[str, ColumnKind],
    one: _Fresh,
    others: Iterable[_Fresh],
) -> Segment:
    """Write a segment of this block and of as many others as it holds."""
    vectors, rows, count = vectors_file(folder, number), rows_file(folder, number), 0
    for path in (vectors, rows):
        refuse_link(path)
    with ExitStack() as stack:
        add_vectors = stack.enter_context(growing_array(vectors, dim))
        add_rows = stack.enter_context(growing_rows(rows, schema_of(columns)))
        waiting = iter(others)
        current: _Fresh | None = one
        while current is not None:
            where, table, unit = current
            add_vectors(unit)
            add_rows(fitted(table, columns, where))
            count += len(unit)
            current = next(waiting, None) if count < _SEGMENT else None
    return Segment(rows=count, vectors_sha256=file_hash(vectors), rows_sha256=file_hash(rows))


def _searched(folder: Path, facts: Facts, first: int = 0) -> ImageIndex:
    """The index with the file that its kind searches; of an index that had one, rows from `first` on are new."""
    kind, old = find_kind(facts.kind), facts.structure
    kind.require(facts.rows)
    if kind.write is not None:
        number = 0 if old is None else old.number + 1
        path = structure_file(folder, number)
        refuse_link(path)
        path.parent.mkdir(exist_ok=True)
        before = None if old is None else structure_file(folder, old.number)
        kind.write(path, Vectors.open(folder, facts), before, first)
        with path.open("rb") as written:
            os.fsync(written.fileno())
        told = Structure(number=number, bytes=path.stat().st_size, sha256=file_hash(path))
        facts = facts.model_copy(update={"structure": told, "effort": 0})
    return ImageIndex(folder, facts)


def _remove_strays(folder: Path, facts: Facts) -> None:
    """Remove what a process that was killed left: files of an index that `index.json` does not name."""
    for path in strays(folder, facts):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def strays(folder: Path, facts: Facts) -> list[Path]:
    """What lies in an index's folders of files and is none of its files."""
    own = set(files_of(folder, facts))
    inside = (path for name in (VECTORS, ROWS, STRUCTURES) for path in sorted((folder / name).glob("*")))
    return [path for path in inside if path not in own]


def left_over(folder: Path) -> list[Path]:
    """The `strays` of an index; none while another process changes it, which may be using them."""
    try:
        with _alone(folder):
            return strays(folder, read_facts(folder))
    except (InputError, OSError):
        return []


def _first(unusable: list[str]) -> str:
    return f" ({unusable[0]})" if unusable else ""
