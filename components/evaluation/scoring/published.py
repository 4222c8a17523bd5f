"""Score one encoder on published benchmarks; existing results are reused."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from components.core.compute.devices import computing_on
from components.core.system.errors import InputError
from components.core.tables.files import atomic_file, content_hash, file_hash
from components.core.tracking import add_metrics
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.published import PublishedBenchmark
from components.evaluation.scoring.published_context import ImageFeatures, PublishedContext
from components.evaluation.scoring.results import (
    PUBLISHED,
    PublishedReport,
    published_file,
    read_published,
    summarise,
    write_results,
)


@dataclass(frozen=True)
class Plan:
    """Settings of a run of benchmarks.

    `data` has the benchmarks' folders. `overwrite` scores even if there is a result, `allow_partial` accepts data
    that is not as published, and `dry_run` only reports which benchmarks would be scored.
    """

    data: Path
    results: Path = PUBLISHED
    overwrite: bool = False
    allow_partial: bool = False
    bootstrap: int = 1000
    seed: int = 0
    ks: tuple[int, ...] = (1, 5, 10)
    options: Mapping[str, Any] = field(default_factory=dict)
    dry_run: bool = False
    image_features: ImageFeatures = field(default_factory=ImageFeatures)


@dataclass(frozen=True)
class BenchmarkRun:
    """One benchmark's state after a run: a new result, an existing one, or the reason why there is none."""

    benchmark: str
    state: Literal["scored", "kept", "would be scored", "failed"]
    report: PublishedReport | None = None
    fault: str = ""


def run_all(under_test: EncoderUnderTest, benchmarks: Sequence[PublishedBenchmark], plan: Plan) -> list[BenchmarkRun]:
    """`run_one` for each; a benchmark that fails does not stop the others."""
    runs = []
    for benchmark in benchmarks:
        try:
            runs.append(run_one(under_test, benchmark, plan))
        except InputError as fault:
            runs.append(BenchmarkRun(benchmark.name, "failed", fault=" ".join(str(fault).split())))
    return runs


def run_one(under_test: EncoderUnderTest, benchmark: PublishedBenchmark, plan: Plan) -> BenchmarkRun:
    """Score one benchmark, or return the existing result of the same encoder, protocol version and data."""
    folder = benchmark.check_files(plan.data)
    if under_test.image_tower_sha256 is None and not benchmark.text_only:
        raise InputError(
            f"benchmark '{benchmark.name}' has images, and '{under_test.name}' only embeds texts: choose another"
        )
    options = {key: value for key, value in plan.options.items() if key in benchmark.options}
    data_hash = content_hash(benchmark.data_hash(plan.data), *_hashes_of_files(options))
    cached = _cached_report(under_test, benchmark, data_hash, options, plan)
    if cached is not None:
        return BenchmarkRun(benchmark.name, "kept", cached)
    if plan.dry_run:
        return BenchmarkRun(benchmark.name, "would be scored")
    context = PublishedContext(
        under_test,
        folder,
        plan.ks,
        allow_partial=plan.allow_partial,
        seed=plan.seed,
        options=options,
        image_features=plan.image_features,
    )
    started = time.perf_counter()
    try:
        with computing_on(under_test.device):
            scores = benchmark.score(context)
    finally:
        # A benchmark may fail because the answers to these rows do not exist yet.
        write_lists(context, benchmark.name, plan.results)
    report = PublishedReport(
        encoder=under_test.name,
        encoder_sha256=under_test.sha256,
        benchmark=benchmark.name,
        version=benchmark.version,
        protocol=benchmark.protocol,
        data_hash=data_hash,
        partial=tuple(context.notes),
        options=options,
        left_out=tuple(context.left_out),
        precision=under_test.precision,
        seconds=time.perf_counter() - started,
        metrics=summarise(benchmark, scores, plan.bootstrap, plan.seed),
    )
    write_results(report, scores, plan.results)
    if under_test.folder is not None and not report.partial:
        add_metrics(under_test.folder, {name: value.value for name, value in report.metrics.items()})
    return BenchmarkRun(benchmark.name, "scored", report)


def _cached_report(
    under_test: EncoderUnderTest, benchmark: PublishedBenchmark, data_hash: str, options: dict[str, Any], plan: Plan
) -> PublishedReport | None:
    """The result that scoring would only repeat, if there is one and it may be used."""
    path = plan.results / published_file(under_test.name, under_test.sha256, benchmark.name)
    if plan.overwrite or not path.exists():
        return None
    report = read_published(path)
    same = report.is_of(under_test.sha256, benchmark.version, data_hash, options)
    return report if same and (plan.allow_partial or not report.partial) else None


def write_lists(context: PublishedContext, benchmark: str, folder: Path) -> None:
    """Write `PublishedContext.lists`: `<folder>/<content>/<encoder>/<benchmark>.tsv`, a row of texts on each line."""
    for content, rows in context.lists.items():
        lines = ("\t".join(" ".join(text.split()) for text in row) for row in rows)
        with atomic_file(folder / content / context.under_test.name / f"{benchmark}.tsv") as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _hashes_of_files(options: Mapping[str, Any]) -> list[str]:
    """Hashes of the files that options name, also as `<model>:<file>`, so that a changed file is a changed result."""
    named = (Path(part) for _, value in sorted(options.items()) for part in (str(value), str(value).partition(":")[2]))
    return [file_hash(path) for path in named if path.is_file()]
