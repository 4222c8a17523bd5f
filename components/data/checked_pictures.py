"""Pictures are read, hashed and decoded once, in as many processes as there are cores.

The results of each chunk (a shard, or some hundred files) are kept in `prepare.state`, so later runs read only changes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

from tqdm import tqdm

from components.core.pictures.rgb import check_mode, check_size, open_picture, rgb
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.system.processes import end_with_parent
from components.core.system.progress import bar
from components.core.tables.ahead import in_order
from components.core.tables.files import content_hash
from components.core.tables.records import CHECKED
from components.data.source import PictureChunk, Sample, Unusable, UnusableError

_VERSION = "4"
"""Increased when the same pictures would give other results."""
_STORED = tuple(column.name for column in fields(Sample) if column.name != "raw")


def check_picture(raw: bytes, name: str) -> None:
    """Check that all pixels of an encoded picture can be decoded, and are not too many.

    Raises:
        UnusableError: they cannot, or see `check_size` and `check_mode`; the message begins with `name`.
    """
    try:
        with open_picture(raw) as image:
            check_size(image)
            check_mode(image)
            image.verify()
        # `verify` does not notice a truncated JPEG; decoding one at an eighth of its size is cheap.
        with open_picture(raw) as image:
            image.draft("RGB", (1, 1))
            rgb(image)
    except ValueError as error:
        raise UnusableError(f"{name} is not a readable image ({error}): replace or remove it") from None


def checked(chunks: Sequence[PictureChunk], settings: Prepare) -> Iterator[Sample | Unusable]:
    """The checked samples of all chunks, in order; several chunks are checked ahead."""
    results = [_result(chunk, settings) for chunk in chunks]
    missing = sum(not result.is_file() for result in results)
    with (
        _bar(chunks) as progress,
        closing(_each(zip(chunks, results, strict=True), missing, settings.processes)) as each,
    ):
        for _, result in each:
            rows = CHECKED.read(result).to_pylist()
            progress.update(len(rows))
            yield from (_from_row(row) for row in rows)


def check_now(chunks: Sequence[PictureChunk], settings: Prepare) -> int:
    """Check all chunks without a stored result; returns their number."""
    work = [(chunk, result) for chunk in chunks if not (result := _result(chunk, settings)).is_file()]
    with _bar([chunk for chunk, _ in work]) as progress, closing(_each(work, len(work), settings.processes)) as each:
        for chunk, _ in each:
            progress.update(chunk.pictures)
    return len(work)


def _result(chunk: PictureChunk, settings: Prepare) -> Path:
    return settings.state / f"{content_hash(_VERSION, chunk.stamp)[:32]}.parquet"


def _bar(chunks: Sequence[PictureChunk]) -> tqdm:  # type: ignore[type-arg]
    return bar("check", sum(chunk.pictures for chunk in chunks), "picture")


def _check(work: tuple[PictureChunk, Path]) -> None:
    """Check a chunk, unless its result is stored already."""
    chunk, result = work
    if result.is_file():
        return
    rows = [_to_row(_checked(sample)) for sample in chunk.read()]
    columns: dict[str, list[object]] = {name: [row.get(name) for row in rows] for name in CHECKED.schema.names}
    CHECKED.write(result, columns)


def _checked(sample: Sample | Unusable) -> Sample | Unusable:
    if isinstance(sample, Unusable) or sample.raw is None:
        return sample
    try:
        check_picture(sample.raw, sample.place)
    except UnusableError as error:
        return Unusable(str(error))
    return replace(sample, raw=None)


def _to_row(sample: Sample | Unusable) -> dict[str, object]:
    if isinstance(sample, Unusable):
        return {"place": sample.reason, "reason": sample.reason, "captions": [], "lost": sample.images}
    return {name: getattr(sample, name) for name in _STORED} | {"captions": list(sample.captions), "lost": 0}


def _from_row(row: dict[str, object]) -> Sample | Unusable:
    if row["reason"] is not None:
        return Unusable(str(row["reason"]), int(str(row["lost"])))
    columns = {name: row[name] for name in _STORED}
    return Sample(**columns | {"captions": tuple(row["captions"])})  # type: ignore[arg-type]


def _start() -> None:
    # Ctrl-C reaches all processes; the first one lets the others finish their chunks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_with_parent(parent.is_alive)


def _each(
    work: Iterable[tuple[PictureChunk, Path]], missing: int, processes: int | None
) -> Generator[tuple[PictureChunk, Path]]:
    """Each chunk after it has been checked, as many ahead as there are processes; here if few are missing."""
    count = min(missing, processes or len(os.sched_getaffinity(0)))
    # With fewer chunks, starting other processes takes longer.
    if missing <= 2 or count == 1:
        for item in work:
            _check(item)
            yield item
        return
    # Forked processes would inherit locks of the threads that libraries have started.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start)
    try:
        yield from (item for item, _ in in_order(pool, _check, work, 2 * count))
    except BrokenProcessPool:
        raise InputError(
            "a process that checks pictures was killed, perhaps for lack of memory: lower prepare.processes and run "
            "the stage again, which resumes from here"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
