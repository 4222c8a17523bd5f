"""Builds an index of the images of a source, adds to it and removes from it; one process at a time changes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from components.core.compute.metrics import Features, Indices
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.encoders.under_test import EncoderUnderTest
from components.serving.index.image_index import (
    AUTO,
    CHUNK,
    EXACT,
    FACTS,
    Chunk,
    Facts,
    ImageIndex,
    choose_kind,
    fitted,
    read_facts,
    schema_for,
)
from components.serving.index.kinds import create_exact, create_lance

_LOCK = ".lock"
_Known = set[int]
"""Hashes of the ids of an index's images."""


@dataclass(frozen=True)
class ImageBlock:
    """Some images of a source.

    Attributes:
        rows: the known columns of `components.serving.index.image_index.OWN`, and further ones.
        vectors: unit vectors `[n, dim]` of rows given by their numbers in the block `[n]`. Raises `InputError` if one
            cannot be computed; called once, without the images that the index has already.
        unusable: the reasons why other pictures cannot be used.
    """

    where: str
    rows: pa.Table
    vectors: Callable[[Indices], Features]
    unusable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """A source that was opened.

    Attributes:
        encoder: name of an encoder with the image tower.
        notes: files left out before any picture is decoded, one line for each reason.
    """

    image_tower_sha256: str
    encoder: str
    dim: int
    total: int | None
    blocks: Callable[[], Iterator[ImageBlock]]
    notes: tuple[str, ...] = ()


class ImageSource(NamedTuple):
    """A kind of source: whether a user's path or pattern is one, and its opening.

    It is opened with the encoder that embeds its pictures or computed its vectors. Of the settings, `text`, `item` and
    `image` name the fields that are read, and bounds limit the files that are opened.
    """

    fits: Callable[[str], bool]
    open: Callable[[str, EncoderUnderTest | None, Prepare], Opened]


@dataclass
class Added:
    """The result of building or appending.

    Attributes:
        rows: number of new images.
        repeated: number of rows of images that were already in the index; their captions are dropped.
        unusable: the reasons why pictures were left out.
    """

    rows: int = 0
    repeated: int = 0
    unusable: list[str] = field(default_factory=list)


def build(folder: Path, opened: Opened, kind: str = AUTO, *, replace: bool = False) -> Added:
    """Write an index; the folder does not change before the last step."""
    check_output(folder, replace=replace)
    added, chosen = Added(), choose_kind(kind, opened.total)
    with _alone(folder):
        check_output(folder, replace=replace)
        chunks = _new_chunks(opened, _Known(), added)
        if (first := next(chunks, None)) is None:
            raise InputError(f"no image to index{''.join(f' ({reason})' for reason in added.unusable[:1])}")
        facts = Facts(kind=chosen, dim=opened.dim, image_tower_sha256=opened.image_tower_sha256, encoder=opened.encoder)
        (create_exact if chosen == EXACT else create_lance)(folder, facts, chain([first], chunks))
    return added


def append(folder: Path, opened: Opened) -> Added:
    """Add new images to an index; a stopped append leaves `exact` as it was, and `lance` with a part of them."""
    check_source(folder, read_facts(folder), opened)
    added, known = Added(), _Known()
    with _alone(folder):
        index = ImageIndex.open(folder)
        check_source(folder, index.facts, opened)
        for rows, _ in index.chunks():
            known.update(map(hash, rows["image_id"].to_pylist()))
        chunks = _new_chunks(opened, known, added, index.schema)
        if (first := next(chunks, None)) is not None:
            index.add(chain([first], chunks))
    return added


def remove(folder: Path, condition: str) -> int:
    """Remove the rows that fulfil a condition in SQL, and return their number; the pictures' files stay."""
    read_facts(folder)
    with _alone(folder):
        index = ImageIndex.open(folder)
        found = len(index.numbers(condition))
        if found == len(index):
            raise InputError(f"all {found} images of {folder} fulfil '{condition}': an index needs one or more")
        if found:
            index.remove(condition)
    return found


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


def _new_chunks(opened: Opened, known: _Known, added: Added, schema: pa.Schema | None = None) -> Iterator[Chunk]:
    """The images of a source that are not known; without a schema, the first ones determine the columns."""
    tables, parts = list[pa.Table](), list[Features]()
    with bar("index", opened.total, "image") as progress:
        for block in opened.blocks():
            rows, vectors = _usable(block, known, added)
            progress.update(block.rows.num_rows + len(block.unusable))
            if not len(vectors):
                continue
            schema = schema or schema_for(rows)
            tables.append(fitted(rows, schema, block.where))
            parts.append(vectors)
            if sum(map(len, parts)) >= CHUNK:
                yield pa.concat_tables(tables).combine_chunks(), np.concatenate(parts)
                tables, parts = [], []
        if parts:
            yield pa.concat_tables(tables).combine_chunks(), np.concatenate(parts)


def _usable(block: ImageBlock, known: _Known, added: Added) -> Chunk:
    """A block's new rows and their vectors, without vectors that are zero or not finite."""
    keys = list(map(hash, block.rows["image_id"].to_pylist()))
    # Of repeated images in the block, the first position remains.
    new = np.array(sorted({key: n for n, key in reversed([*enumerate(keys)]) if key not in known}.values()), np.int64)
    known.update(keys)
    rows, vectors = block.rows.take(new), block.vectors(new) if len(new) else np.empty((0, 1), np.float32)
    is_unit = np.abs(np.linalg.norm(vectors, axis=1) - 1) <= 1e-3
    names = rows["name" if "name" in rows.column_names else "image_id"].filter(pa.array(~is_unit))
    added.unusable += block.unusable
    added.unusable += [
        f"{block.where}: the vector of '{name}' is zero or not finite: compute it again" for name in names
    ]
    added.repeated += block.rows.num_rows - len(new)
    added.rows += int(is_unit.sum())
    return rows.filter(pa.array(is_unit)), vectors[is_unit]
