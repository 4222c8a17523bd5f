"""The declaration of a benchmark: files, metrics, protocol and scoring function; and the scores that it returns."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from components.core.compute.metrics import Indices, Reals, shared
from components.core.system.errors import InputError
from components.core.tables.files import content_hash, file_hash
from components.core.tables.folders import RequiredFile
from components.evaluation.scoring.context import Context


@dataclass(frozen=True)
class Metric:
    """A metric: the last part of its full name with `k` for a depth, such as `ao_at_k`."""

    name: str
    higher_is_better: bool
    ties: str
    """The treatment of equal similarities, in words."""


def metrics(ties: str, *names: str, higher_is_better: bool = True) -> tuple[Metric, ...]:
    """Declarations of metrics that share direction and treatment of ties."""
    return tuple(Metric(name, higher_is_better, ties) for name in names)


@dataclass(frozen=True)
class Correlation:
    """A metric that is the correlation of two columns, `[rows]` each, such as human and cosine similarities.

    `tau_c` is Kendall's for columns of different numbers of distinct values.
    """

    kind: Literal["spearman", "pearson", "tau_c"]
    gold: Reals
    predicted: Reals


Column = Reals | Correlation
"""The values per query of a metric, or its correlation."""


@dataclass(frozen=True)
class Scores:
    """The scores of one encoder on one or more benchmarks.

    Attributes:
        values: full metric name `<benchmark>/[<group>/]<metric>` -> one value per query `[queries]`.
        strata: for metrics that are a mean of group means, each query's group number `[queries]`.
        rankings: named top lists `[queries, depth]` of gallery rows, kept for the report's gallery.
        correlations: full metric name -> its columns.
        scalars: full metric name -> a value that is not a mean over queries, such as a standard error over seeds.
        pictures: full metric name -> number of each query's picture `[queries]`, or of its two `[queries, 2]`; kept
            only if a picture has several queries, whose values are then not independent.
    """

    values: dict[str, Reals]
    strata: dict[str, Indices] = field(default_factory=dict)
    rankings: dict[str, Indices] = field(default_factory=dict)
    correlations: dict[str, Correlation] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    pictures: dict[str, Indices] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in [name for name, pictures in self.pictures.items() if not shared(pictures)]:
            del self.pictures[name]

    def column(self, name: str) -> Column | None:
        """The values per query of a metric, or its correlation; None without either."""
        return self.values.get(name, self.correlations.get(name))

    def groups(self, name: str) -> tuple[Indices | None, Indices | None]:
        """The strata and pictures of a metric's queries, as intervals take them."""
        return self.strata.get(name), self.pictures.get(name)

    def update(self, others: Scores) -> None:
        """Add the scores of another benchmark, whose metrics have other names."""
        for mine, theirs in zip(vars(self).values(), vars(others).values(), strict=True):
            mine.update(theirs)


def grouped(
    benchmark: str,
    columns: Mapping[str, Reals],
    pictures: Indices,
    groups: Mapping[str, Sequence[str]] = MappingProxyType({}),
    within: Collection[str] | None = None,
) -> Scores:
    """Values over all queries, `<benchmark>/<metric>`, and by group, `<benchmark>/<kind>_<group>/<metric>`.

    Args:
        columns: metric -> one value per query `[queries]`.
        pictures: the picture of each query, or its two.
        groups: kind of group -> the group of each query; groups come in the order in which they first occur.
        within: the metrics that are reported by group; None for all.
    """
    scores = Scores({})
    cuts = {"": np.ones(len(pictures), dtype=np.bool_)}
    for kind, labels in groups.items():
        cuts |= {f"{kind}_{group}/": np.array(labels) == group for group in dict.fromkeys(labels)}
    for group, chosen in cuts.items():
        shown = [name for name in columns if not group or within is None or name in within]
        values = {f"{benchmark}/{group}{name}": columns[name][chosen] for name in shown}
        scores.update(Scores(values, pictures=dict.fromkeys(values, pictures[chosen])))
    return scores


Given = TypeVar("Given", bound=Context)
"""Context that a benchmark scores: the gallery of synthetic scenes, or a folder of published files."""

_PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
"""Suffixes of files of which folders hold thousands: reading all of them would take as long as scoring."""
_SETTLED_S = 5.0
_DEPTH = re.compile(r"_at_(\d+)$")


@dataclass(frozen=True)
class Benchmark(Generic[Given]):
    """One benchmark, on synthetic scenes or on published files.

    Attributes:
        name: first part of its metrics' names.
        version: protocol version; raised when a value could change for the same encoder and data.
        score: scores the context's encoder; raises `InputError` if files are missing or not as published, or the
            encoder cannot be used.
        key_metrics: full names of the metrics of a short table; a depth stands for the nearest measured depth.
        protocol: the source of its rules, in a few words.
        folder: below the data folder; benchmarks that read the same files share one.
        text_only: whether encoders without an image tower can be scored.
        options: `--benchmark-option <key>=<value>` that it accepts, with their meanings.
    """

    name: str
    version: int
    needs: tuple[RequiredFile, ...]
    metrics: tuple[Metric, ...]
    score: Callable[[Given], Scores] = field(repr=False)
    key_metrics: tuple[str, ...] = ()
    protocol: str = ""
    citation: str = ""
    folder: str = ""
    text_only: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def missing(self, data: Path) -> list[RequiredFile]:
        """Required files that do not exist."""
        return [need for need in self.needs if not need.optional and not (data / self.folder / need.path).exists()]

    def check_files(self, data: Path) -> Path:
        """The benchmark's folder below `data`."""
        folder = data / self.folder
        if missing := self.missing(data):
            listed = "; ".join(need.description for need in missing)
            raise InputError(f"benchmark '{self.name}' lacks files: put into {folder}: {listed}")
        return folder

    def data_hash(self, data: Path) -> str:
        """Hash of the benchmark's files: their bytes, but of pictures in folders only names and sizes."""
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
        """The declaration of a full metric name; a `KeyError` if there is none."""
        family = _DEPTH.sub("_at_k", full_name.rsplit("/", 1)[-1])
        return {metric.name: metric for metric in self.metrics}[family]


def _listing(folder: Path) -> list[str]:
    parts: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        identity = str(path.stat().st_size) if path.suffix.lower() in _PICTURES else _bytes_hash(path)
        parts += [path.relative_to(folder).as_posix(), identity]
    return parts


def _bytes_hash(path: Path) -> str:
    """Hash of a file's bytes, which one command reads only once for all encoders and benchmarks."""
    status = path.stat()
    # A file that was just written may change again and keep its times, which are coarse.
    if time.time() - status.st_ctime < _SETTLED_S:
        return file_hash(path)
    return _hash_of(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@cache
def _hash_of(path: Path, *_status: int) -> str:
    return file_hash(path)


def key_metrics(benchmarks: Iterable[Benchmark[Any]], measured: Collection[str]) -> list[str]:
    """Full names of the measured metrics that `benchmarks` declare as their key metrics.

    Of a metric's measured depths the one nearest to the declared depth is taken.
    """
    names = [_nearest(name, measured) for benchmark in benchmarks for name in benchmark.key_metrics]
    return list(dict.fromkeys(name for name in names if name in measured))


def tracked_metrics(benchmarks: Iterable[Benchmark[Any]], measured: Collection[str]) -> list[str]:
    """The key metrics, and all other metrics over all queries that have no depth, in the order of `measured`."""
    chosen = set(key_metrics(benchmarks, measured))
    return [name for name in measured if name in chosen or (name.count("/") == 1 and not _DEPTH.search(name))]


def _nearest(name: str, measured: Collection[str]) -> str:
    declared = _DEPTH.search(name)
    if declared is None:
        return name
    family, depth = name[: declared.start()], int(declared.group(1))
    matches = (re.fullmatch(rf"{family}_at_(\d+)", other) for other in measured)
    depths = [int(match.group(1)) for match in matches if match]
    return f"{family}_at_{min(depths, key=lambda other: (abs(other - depth), other))}" if depths else name
