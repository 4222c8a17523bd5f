"""Benchmarks, one file each; a file's name is the benchmark's name in `evaluate.benchmarks`."""

from __future__ import annotations

from components.benchmarks.benchmark import Benchmark
from components.core.discovery import file_names, find


def benchmark_names() -> list[str]:
    """The names of all benchmarks, sorted."""
    return file_names(__path__)


def find_benchmark(name: str) -> Benchmark:
    """The benchmark in `benchmarks/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    what = "params.yaml: evaluate.benchmarks has"
    benchmark: Benchmark = find(__name__, benchmark_names(), name, "BENCHMARK", what)
    return benchmark
