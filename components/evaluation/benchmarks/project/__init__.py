"""Benchmarks on the tables of `data/evaluation`, with the names of `evaluate.benchmarks`.

A file of a benchmark's name has it as `BENCHMARK`, a file of a subject has several as `TABLE_BENCHMARKS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from components.core.system.discovery import choose, file_names, modules_by_name
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile, benchmark_table
from components.evaluation.scoring.benchmark import Benchmark, Metric, Scores
from components.evaluation.scoring.context import ProjectContext

ProjectBenchmark: TypeAlias = Benchmark[ProjectContext]


def on_test_split(
    name: str,
    score: Callable[[ProjectContext], Scores],
    files: Iterable[str],
    metrics: tuple[Metric, ...],
    key_metrics: tuple[str, ...] = (),
) -> ProjectBenchmark:
    """The declaration of a benchmark that reads the tables `files`."""
    return Benchmark(name, 1, tuple(map(RequiredFile, files)), metrics, score, key_metrics)


def benchmark_names() -> list[str]:
    """The names of all benchmarks, sorted."""
    return file_names(__path__)


def table_files(benchmarks: Iterable[ProjectBenchmark], folder: Path) -> list[Path]:
    """The tables that the benchmarks read from `folder` or the written test set, sorted, without repetition."""
    benchmarks = list(benchmarks)
    for benchmark in benchmarks:
        for need in missing_tables(benchmark, folder):
            raise InputError(
                f"{folder / need.path} is missing, benchmark '{benchmark.name}' requires it: run `dvc repro "
                f"prepare`, have a model write it (test_set.llm in params.yaml), or remove '{benchmark.name}' from "
                "evaluate.benchmarks"
            )
    return sorted({benchmark_table(folder, need.path) for benchmark in benchmarks for need in benchmark.needs})


def missing_tables(benchmark: ProjectBenchmark, folder: Path) -> list[RequiredFile]:
    """Tables of the benchmark that are neither in `folder` nor in the written test set."""
    return [need for need in benchmark.needs if not benchmark_table(folder, need.path).exists()]


def find_benchmark(name: str) -> ProjectBenchmark:
    """The benchmark of that name."""
    files = modules_by_name(__path__)
    choose(sorted(files), name, "params.yaml: evaluate.benchmarks has")
    module = importlib.import_module(f"{__name__}.{files[name]}")
    found: tuple[ProjectBenchmark, ...] = getattr(module, "TABLE_BENCHMARKS", None) or (module.BENCHMARK,)
    return next(benchmark for benchmark in found if benchmark.name == name)
