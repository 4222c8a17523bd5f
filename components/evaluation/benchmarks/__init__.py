"""Benchmarks, one file each; a file's name is the benchmark's name in `evaluate.benchmarks`."""

from __future__ import annotations

import importlib
import pkgutil

from components.errors import InputError
from components.evaluation.benchmark import Benchmark


def benchmark_names() -> list[str]:
    """The names of all benchmarks, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find_benchmark(name: str) -> Benchmark:
    """The benchmark in `benchmarks/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    if name not in benchmark_names():
        known = ", ".join(benchmark_names())
        raise InputError(f"params.yaml: evaluate.benchmarks has '{name}', which is unknown: choose from {known}")
    benchmark: Benchmark = importlib.import_module(f"{__name__}.{name}").BENCHMARK
    return benchmark
