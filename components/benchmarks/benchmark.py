"""What a benchmark declares: the files it reads, its metrics, its protocol, and how it scores an encoder."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from components.benchmarks.encoding.context import Context
from components.benchmarks.scores import Metric, Scores
from components.core.errors import InputError
from components.core.files import content_hash, file_hash

if TYPE_CHECKING:
    from components.benchmarks.encoding.pictures import Picture


Given = TypeVar("Given", bound=Context)
"""What a benchmark is given: the embedded world's gallery, or a folder of published files."""

_PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
"""Endings of the files that folders hold by the thousand: to read all of them would take as long as to score them."""
_SETTLED_S = 5.0


@dataclass(frozen=True)
class Need:
    """A file or folder that a benchmark reads; of tables that stage `prepare` writes the path says all.

    Attributes:
        path: below the benchmark's folder.
        what: what it holds, such as "23,937 cases".
        size: about how large it is, such as "6 MB".
        licence: of its content, or what is known of it.
        source: who publishes it, such as a repository's name.
        optional: whether the benchmark does without it.
    """

    path: str
    what: str = ""
    size: str = ""
    licence: str = ""
    source: str = ""
    optional: bool = False

    @property
    def told(self) -> str:
        """What to put where."""
        return f"{self.path} ({self.what}, {self.size}, licence: {self.licence}, from {self.source})"


@dataclass(frozen=True)
class Tested:
    """What a benchmark shows an encoder, which training may not hold.

    Attributes:
        texts: its sentences, the false ones too; prompts made of class names are none.
        files: its picture files, whether or not they are there.
        pictures: pictures of benchmarks that know no file of each.
        names: folder in which the publisher of the pictures keeps them, where the benchmark's own folder has another
            name and so does not say whose numbers the files' names are.
    """

    texts: Sequence[str] = ()
    files: Sequence[Path] = ()
    pictures: Sequence[Picture] = ()
    names: str = ""


@dataclass(frozen=True)
class Benchmark(Generic[Given]):
    """One benchmark, of the embedded world or in the format in which its authors publish it.

    Attributes:
        name: first part of its metrics' names, and what users call it.
        version: protocol version; raised when a value could change for the same encoder and data.
        needs: what it reads below its folder.
        metrics: everything it may report.
        score: scores the context's encoder; raises `InputError` where files are missing or not as published, or
            the encoder cannot be used.
        key_metrics: full names of what a short table shows; a depth stands for the nearest one that was measured.
        protocol: whose rules it follows, in a few words.
        citation: the paper that introduced it.
        folder: below the data folder; benchmarks that read the same files share one.
        text_only: whether encoders without an image tower can be scored.
        options: what a user may choose for it, `--option <key>=<value>`, and what it means.
        tested: reads what no training pair may hold; None where another benchmark of the same folder tells it.
    """

    name: str
    version: int
    needs: tuple[Need, ...]
    metrics: tuple[Metric, ...]
    score: Callable[[Given], Scores] = field(repr=False)
    key_metrics: tuple[str, ...] = ()
    protocol: str = ""
    citation: str = ""
    folder: str = ""
    text_only: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    tested: Callable[[Given], Tested] | None = field(default=None, repr=False)

    def missing(self, data: Path) -> list[Need]:
        """What it cannot do without and is not there."""
        return [need for need in self.needs if not need.optional and not (data / self.folder / need.path).exists()]

    def check_files(self, data: Path) -> Path:
        """The benchmark's folder below `data`.

        Raises:
            InputError: files are missing; the message lists what to put where, with size and licence.
        """
        folder = data / self.folder
        if missing := self.missing(data):
            listed = "; ".join(need.told for need in missing)
            raise InputError(f"benchmark '{self.name}' lacks files: put into {folder}: {listed}")
        return folder

    def data_hash(self, data: Path) -> str:
        """Hash of what the benchmark reads: of all files their bytes, but of single pictures their names and sizes."""
        folder = data / self.folder
        parts: list[str] = []
        for need in self.needs:
            path = folder / need.path
            if path.is_dir():
                parts += [need.path, *_listing(path)]
            elif path.exists():
                parts += [need.path, _bytes_hash(path)]
        return content_hash(*parts)

    def metric(self, full_name: str) -> Metric:
        """The declaration behind a full metric name; a `KeyError` when there is none."""
        family = re.sub(r"_at_\d+$", "_at_k", full_name.rsplit("/", 1)[-1])
        return {metric.name: metric for metric in self.metrics}[family]


def _listing(folder: Path) -> list[str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [part for path in files for part in (path.relative_to(folder).as_posix(), _told(path))]


def _told(path: Path) -> str:
    return str(path.stat().st_size) if path.suffix.lower() in _PICTURES else _bytes_hash(path)


def _bytes_hash(path: Path) -> str:
    """Hash of a file's bytes, read once in a command, however many encoders and benchmarks ask for it."""
    status = path.stat()
    # A file that was just written may change again and keep its times, which are coarse.
    if time.time() - status.st_ctime < _SETTLED_S:
        return file_hash(path)
    return _hash_of(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@cache
def _hash_of(path: Path, *_status: int) -> str:
    return file_hash(path)


_DEPTH = re.compile(r"_at_(\d+)$")


def key_metrics(benchmarks: Iterable[Benchmark[Any]], measured: Collection[str]) -> list[str]:
    """Full names of the metrics that `benchmarks` declare as their key metrics, as far as they were measured.

    Args:
        benchmarks: in the order in which their metrics are shown.
        measured: full metric names; of a metric's depths that nearest to the declared one is taken.
    """
    found = [_nearest(name, measured) for benchmark in benchmarks for name in benchmark.key_metrics]
    return list(dict.fromkeys(name for name in found if name in measured))


def tracked_metrics(benchmarks: Iterable[Benchmark[Any]], measured: Collection[str]) -> list[str]:
    """The key metrics, and all other metrics over all queries that have no depth, in the order of `measured`."""
    chosen = set(key_metrics(benchmarks, measured))
    return [name for name in measured if name in chosen or (name.count("/") == 1 and not _DEPTH.search(name))]


def _nearest(name: str, measured: Collection[str]) -> str:
    declared = _DEPTH.search(name)
    if declared is None:
        return name
    family, depth = name[: declared.start()], int(declared.group(1))
    depths = [int(found.group(1)) for found in (re.fullmatch(rf"{family}_at_(\d+)", one) for one in measured) if found]
    return f"{family}_at_{min(depths, key=lambda other: (abs(other - depth), other))}" if depths else name
