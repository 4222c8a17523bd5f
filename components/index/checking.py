"""Checks that an index and its pictures are unchanged since it was built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.core.compute.metrics import Features
from components.core.pictures.stored_pictures import Pictures
from components.core.system.errors import InputError
from components.core.system.progress import bar, track
from components.core.tables.files import file_hash
from components.index.building import left_over
from components.index.facts import BUILD_AGAIN, Facts, read_facts, rows_file, structure_file, vectors_file
from components.index.image_index import ImageIndex, picture_of, spread
from components.index.rows import Rows, schema_of
from components.index.tuning import TARGET
from components.index.vectors import not_unit, open_segment

SAMPLED = 200
"""Pictures that are checked by default."""
_ROWS = 1 << 14
_RESTORE = f"restore it from a copy, or {BUILD_AGAIN}"


@dataclass(frozen=True)
class Problem:
    """A problem of an index: its place, a description and the fix."""

    where: str
    what: str
    fix: str


@dataclass(frozen=True)
class IndexReport:
    """The result of a check, with the numbers of pictures read and of checked rows without a picture."""

    facts: Facts | None
    problems: tuple[Problem, ...]
    pictures: int = 0
    without: int = 0


def check(folder: Path, *, every: bool = False) -> IndexReport:
    """Check every file of an index, and some of its pictures, or `every` one."""
    try:
        facts = read_facts(folder)
    except InputError as error:
        return IndexReport(None, (_problem(error),))
    files = [*_files(folder, facts)]
    left = [Problem(str(path), "is not part of the index", "delete it") for path in left_over(folder)]
    if files:
        return IndexReport(facts, (*files, *left))
    try:
        index = ImageIndex(folder, facts)
        problems = [*_rows(index), *_recalls(folder, facts), *left]
        moved, pictures, without = _pictures(index, every=every)
    except InputError as error:
        return IndexReport(facts, (_problem(error), *left))
    return IndexReport(facts, (*problems, *moved), pictures, without)


def _problem(error: InputError) -> Problem:
    """A one-line error that names a file and ends with the fix, as a row of the table."""
    what, _, fix = str(error).rpartition(": ")
    return Problem("", what, fix)


def _files(folder: Path, facts: Facts) -> Iterator[Problem]:
    with bar("check files", facts.rows, "vector") as progress:
        for number, segment in enumerate(facts.segments):
            vectors, rows = vectors_file(folder, number), rows_file(folder, number)
            try:
                array = open_segment(vectors, segment.rows, facts.dim)
                Rows([rows], [segment.rows], schema_of(facts.columns)).keys()
            except InputError as error:
                yield _problem(error)
                continue
            yield from _hashes({vectors: segment.vectors_sha256, rows: segment.rows_sha256})
            yield from _lengths(vectors, array)
            progress.update(segment.rows)
    if facts.structure is not None:
        path = structure_file(folder, facts.structure.number)
        if path.is_symlink() or not path.is_file():
            yield Problem(str(path), "is missing, or a link", _RESTORE)
        else:
            yield from _hashes({path: facts.structure.sha256})


def _hashes(expected: dict[Path, str]) -> Iterator[Problem]:
    for path, sha256 in expected.items():
        if file_hash(path) != sha256:
            yield Problem(str(path), "is not the file that index.json lists (its SHA-256 differs)", _RESTORE)


def _lengths(path: Path, array: Features) -> Iterator[Problem]:
    for start in range(0, len(array), _ROWS):
        bad = start + not_unit(array[start : start + _ROWS])
        if len(bad):
            length = np.linalg.norm(array[bad[0]])
            fault = f"has length {length:.3f}, not 1" if np.isfinite(length) else "is not finite"
            yield Problem(str(path), f"row {int(bad[0])} {fault}", _RESTORE)
            return


def _rows(index: ImageIndex) -> Iterator[Problem]:
    keys = index.image_keys()
    if repeated := len(keys) - len(np.unique(keys)):
        yield Problem(str(index.folder), f"{repeated} rows have the image id of another row", BUILD_AGAIN)


def _recalls(folder: Path, facts: Facts) -> Iterator[Problem]:
    for recall in facts.recalls:
        if recall.recall_at_10 < TARGET:
            yield Problem(
                str(folder),
                f"recall@10 of text queries of '{recall.encoder}' is {recall.recall_at_10:.3f}, below {TARGET}",
                "build the index again with --kind exact, or request more images than you show",
            )


def _pictures(index: ImageIndex, *, every: bool) -> tuple[list[Problem], int, int]:
    """Missing or changed pictures, the number of intact ones, and the number of rows without a picture."""
    count = len(index)
    numbers = np.arange(count) if every else spread(count, SAMPLED)
    problems, read, without = list[Problem](), 0, 0
    with Pictures() as pictures:
        for number in track(numbers.tolist(), "check pictures", len(numbers), "picture"):
            (row,) = index.rows([number]).to_pylist()
            if row["file"] is None or row["size"] is None:
                without += 1
                continue
            try:
                picture_of(row, number, pictures)
                read += 1
            except InputError as error:
                problems.append(_problem(error))
    return problems, read, without
