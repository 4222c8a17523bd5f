"""Benchmarks on published files. Each file exports `BENCHMARKS`, those that read the same format.

Experiments (`research.experiments`) add theirs in the same way; they are found by name and never imported elsewhere.
All of them raise `InputError` if files are missing or not as published, or the encoder cannot be used.
"""

from __future__ import annotations

import importlib
from typing import TypeAlias

from components.core.system.discovery import file_names, names_in
from components.evaluation.scoring.benchmark import Benchmark
from components.evaluation.scoring.published_context import PublishedContext

PublishedBenchmark: TypeAlias = Benchmark[PublishedContext]

_EXPERIMENTS = "research.experiments"
_PARTS = "parts"
"""Folder of modules that several experiments share."""


def _modules() -> dict[str, tuple[PublishedBenchmark, ...]]:
    """File name -> the benchmarks that it exports."""
    names = {name: f"{__name__}.{name}" for name in file_names(__path__)}
    names |= {name: f"{_EXPERIMENTS}.{name}" for name in names_in(_EXPERIMENTS, skip=[_PARTS])}
    return {name: importlib.import_module(module).BENCHMARKS for name, module in names.items()}


def published_benchmarks() -> dict[str, PublishedBenchmark]:
    """All published benchmarks by name, sorted."""
    by_name = {benchmark.name: benchmark for benchmarks in _modules().values() for benchmark in benchmarks}
    return dict(sorted(by_name.items()))


def published_families() -> dict[str, list[str]]:
    """File name -> its benchmarks, of files with several benchmarks and a name that is not a benchmark's."""
    names = published_benchmarks()
    several = {file: [one.name for one in benchmarks] for file, benchmarks in _modules().items() if len(benchmarks) > 1}
    return dict(sorted((file, members) for file, members in several.items() if file not in names))
