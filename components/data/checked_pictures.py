"""Pictures are read, hashed and decoded once, a part of them at a time, by as many processes as there are cores.

What was found of a part is kept in `prepare.state`, so that a stage that was stopped, or runs again with other counts,
reads only the parts that are new or have changed. A part is a shard, or some hundred files of a folder.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from tempfile import gettempdir

from tqdm import tqdm

from components.core.ahead import in_order
from components.core.errors import InputError
from components.core.files import content_hash, image_id
from components.core.processes import end_with_parent
from components.core.progress import bar
from components.core.records import CHECKED
from components.core.settings import Prepare
from components.data.checking import check_picture
from components.data.leaks.keys import picture_key
from components.data.source import Seen, Unusable, UnusableError

_VERSION = "3"
"""Raised when the same pictures would be checked otherwise."""
_SEEN = tuple(one.name for one in fields(Seen))
_FEW = 2
"""Parts that this process checks itself: others would take longer to start."""
_IMPORTED = ["components.data.listed_images", "components.data.leaks.guard", "components.core.checking"]
"""The imports of processes, done once by the process that they are forked from; Python warns where the module that is
run, `components.data.prepare`, is one of them."""
_LONGEST = 70
"""Characters of the folder of temporary files, where the one that forks has a socket: of its path 107 are allowed."""


@dataclass(frozen=True)
class Sample:
    """A picture as its source reads it, before it is checked.

    Attributes:
        place: where it is, for messages, such as `data/train-00000.parquet: row 12`.
        raw: its encoded bytes.
        file, position: see `components.core.records.PAIRS`.
        captions, name, split: see `Seen`.
    """

    place: str
    raw: bytes
    file: str
    position: int | None
    captions: tuple[str, ...] = ()
    name: str = ""
    split: str = ""


@dataclass(frozen=True)
class Part:
    """Pictures that are checked together.

    Attributes:
        stamp: changes when one of the pictures does, or what stands with them.
        read: yields them, and what is not even readable; other processes call it, so it can be pickled. What it yields
            as seen is not decoded.
        pictures: about how many there are.
    """

    stamp: str
    read: Callable[[], Iterable[Sample | Seen | Unusable]]
    pictures: int


def checked(parts: Sequence[Part], settings: Prepare) -> Iterator[Seen | Unusable]:
    """What was found of each picture, in the order of the parts; several parts are checked ahead.

    Raises:
        InputError: a file cannot be read at all.
    """
    places = [_place(part, settings) for part in parts]
    missing = [part for part, place in zip(parts, places, strict=True) if not place.is_file()]
    with _Pool(len(missing), settings.processes) as pool, _bar(parts) as progress:
        work = zip(parts, places, strict=True)
        for _, place in pool.each(work):
            rows = CHECKED.read(place).to_pylist()
            progress.update(len(rows))
            yield from (_found(row) for row in rows)


def _place(part: Part, settings: Prepare) -> Path:
    return settings.state / f"{content_hash(_VERSION, part.stamp)[:32]}.parquet"


def _bar(parts: Sequence[Part]) -> tqdm:  # type: ignore[type-arg]
    return bar("check", sum(part.pictures for part in parts), "picture")


def check_now(parts: Sequence[Part], settings: Prepare) -> int:
    """Check the parts that are not known yet, and keep what was found; returns how many these were.

    Raises:
        InputError: a file cannot be read at all.
    """
    work = [(part, place) for part in parts if not (place := _place(part, settings)).is_file()]
    with _Pool(len(work), settings.processes) as pool, _bar([part for part, _ in work]) as progress:
        for part, _ in pool.each(work):
            progress.update(part.pictures)
    return len(work)


def _check(work: tuple[Part, Path]) -> None:
    """Check a part unless it is known, and keep what was found."""
    part, place = work
    if place.is_file():
        return
    found = [_row(_seen(one) if isinstance(one, Sample) else one) for one in part.read()]
    columns: dict[str, list[object]] = {name: [row.get(name) for row in found] for name in CHECKED.schema.names}
    CHECKED.write(place, columns)


def _seen(sample: Sample) -> Seen | Unusable:
    try:
        check_picture(sample.raw, sample.place)
    except UnusableError as error:
        return Unusable(str(error))
    return seen(sample)


def seen(sample: Sample) -> Seen:
    """What is to be known of a picture that was checked."""
    raw = sample.raw
    return Seen(
        place=sample.place,
        file=sample.file,
        position=sample.position,
        size=len(raw),
        image_id=image_id(raw),
        key=picture_key(raw),
        captions=sample.captions,
        name=sample.name,
        split=sample.split,
    )


def _row(found: Seen | Unusable) -> dict[str, object]:
    if isinstance(found, Unusable):
        return {"place": found.reason, "reason": found.reason, "captions": [], "lost": found.images}
    return {name: getattr(found, name) for name in _SEEN} | {"captions": list(found.captions), "lost": 0}


def _found(row: dict[str, object]) -> Seen | Unusable:
    if row["reason"] is not None:
        return Unusable(str(row["reason"]), int(str(row["lost"])))
    known = {name: row[name] for name in _SEEN}
    return Seen(**known | {"captions": tuple(row["captions"])})  # type: ignore[arg-type]


def get_ready(processes: int | None) -> None:
    """Begin to import what processes that check pictures need, beside what this one does meanwhile."""
    if _processes(processes) > 1 and isinstance(_context(), ForkServerContext):
        forkserver.ensure_running()


def _processes(wanted: int | None) -> int:
    return wanted or len(os.sched_getaffinity(0))


def _context() -> ForkServerContext | SpawnContext:
    # Forked from this process, they would hold locks of the threads that libraries have started.
    if len(gettempdir()) > _LONGEST:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


def _start(environment: dict[str, str]) -> None:
    # The process that this one was forked from may have started under another, without a store's keys.
    os.environ.update(environment)
    # Ctrl-C reaches all processes; the first one lets the others finish their parts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_with_parent(parent.is_alive)


class _Pool:
    """Processes that check parts in order, as many ahead as there are processes; none where there is little to do."""

    def __init__(self, missing: int, processes: int | None) -> None:
        count = min(missing, _processes(processes))
        self._count = 1 if missing <= _FEW else count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> _Pool:
        if self._count > 1:
            self._pool = ProcessPoolExecutor(self._count, _context(), _start, (dict(os.environ),))
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def each(self, work: Iterable[tuple[Part, Path]]) -> Iterator[tuple[Part, Path]]:
        """Each part once it is checked.

        Raises:
            InputError: a process was killed, or a part cannot be read.
        """
        if self._pool is None:
            for one in work:
                _check(one)
                yield one
            return
        try:
            yield from (one for one, _ in in_order(self._pool, _check, work, 2 * self._count))
        except BrokenProcessPool:
            raise InputError(
                "a process that checks pictures was killed, perhaps for want of memory: lower prepare.processes and "
                "run the stage again, which goes on from here"
            ) from None
