"""Benchmarks in their published formats; each file exports `BENCHMARKS`, those that read the same format."""

from __future__ import annotations

import importlib
from typing import TypeAlias

from components.benchmarks.benchmark import Benchmark
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.discovery import choose, file_names

PublishedBenchmark: TypeAlias = Benchmark[PublishedContext]


def _files() -> dict[str, tuple[PublishedBenchmark, ...]]:
    """Name of each file here -> the benchmarks that it exports."""
    return {name: importlib.import_module(f"{__name__}.{name}").BENCHMARKS for name in file_names(__path__)}


def published_benchmarks() -> dict[str, PublishedBenchmark]:
    """All published benchmarks by name, sorted."""
    found = {benchmark.name: benchmark for benchmarks in _files().values() for benchmark in benchmarks}
    return dict(sorted(found.items()))


def published_families() -> dict[str, list[str]]:
    """Name of a file here that exports several benchmarks -> their names; a benchmark's own name stays that."""
    several = {name: [one.name for one in found] for name, found in _files().items() if len(found) > 1}
    return {name: members for name, members in several.items() if name not in published_benchmarks()}


def find_published(name: str) -> PublishedBenchmark:
    """The benchmark of that name.

    Raises:
        InputError: there is none; the message lists those there are.
    """
    known = published_benchmarks()
    return known[choose(list(known), name, "benchmark")]
