"""Score one encoder on published benchmarks; what has a result already is left alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from components.benchmarks.encoding.encoder_under_test import EncoderUnderTest
from components.benchmarks.encoding.image_features import ImageFeatures
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.published import PublishedBenchmark
from components.core.errors import InputError
from components.core.files import content_hash, file_hash
from components.evaluation.published_results import (
    FOLDER,
    PublishedReport,
    read_published,
    report_path,
    write_published,
)
from components.evaluation.summarise import summarise
from components.tracking import add_metrics


@dataclass(frozen=True)
class Plan:
    """How benchmarks are run.

    Attributes:
        data: the folder that has each benchmark's folder.
        results: where results go.
        again: score even where there is a result.
        allow_partial: go on with data that is not as published.
        bootstrap: resamples of each interval.
        seed: of everything that is drawn.
        ks: depths of ranking metrics.
        options: by benchmark or topic, see the benchmarks.
        dry_run: only say what would be scored.
        image_features: the cache of image features.
    """

    data: Path
    results: Path = FOLDER
    again: bool = False
    allow_partial: bool = False
    bootstrap: int = 1000
    seed: int = 0
    ks: tuple[int, ...] = (1, 5, 10)
    options: Mapping[str, Any] = field(default_factory=dict)
    dry_run: bool = False
    image_features: ImageFeatures = field(default_factory=ImageFeatures)


@dataclass(frozen=True)
class Outcome:
    """What became of one benchmark: a new result, one that was there, or why there is none."""

    benchmark: str
    state: Literal["scored", "kept", "would be scored", "failed"]
    report: PublishedReport | None = None
    fault: str = ""


def run_one(under_test: EncoderUnderTest, benchmark: PublishedBenchmark, plan: Plan) -> Outcome:
    """Score one benchmark, or give the result that is there for the same encoder, protocol version and data.

    Raises:
        InputError: files are missing or not as published, or the encoder cannot be used with this benchmark.
    """
    folder = benchmark.check_files(plan.data)
    if under_test.image_tower_sha256 is None and not benchmark.text_only:
        raise InputError(
            f"benchmark '{benchmark.name}' shows images, and '{under_test.name}' embeds texts alone: choose another"
        )
    chosen = {key: value for key, value in plan.options.items() if key in benchmark.options}
    data_hash = content_hash(benchmark.data_hash(plan.data), *_files_in(chosen))
    cached = cached_report(under_test, benchmark, data_hash, chosen, plan)
    if cached is not None:
        return Outcome(benchmark.name, "kept", cached)
    if plan.dry_run:
        return Outcome(benchmark.name, "would be scored")
    context = PublishedContext(
        under_test, folder, plan.ks, plan.seed, plan.allow_partial, chosen, image_features=plan.image_features
    )
    started = time.perf_counter()
    scores = benchmark.score(context)
    report = PublishedReport(
        encoder=under_test.name,
        encoder_sha256=under_test.sha256,
        benchmark=benchmark.name,
        version=benchmark.version,
        protocol=benchmark.protocol,
        data_hash=data_hash,
        partial=tuple(context.notes),
        options=chosen,
        seconds=time.perf_counter() - started,
        metrics=summarise(benchmark, scores, plan.bootstrap, plan.seed),
    )
    write_published(report, scores, plan.results)
    if under_test.folder is not None and not report.partial:
        add_metrics(under_test.folder, {name: value.value for name, value in report.metrics.items()})
    return Outcome(benchmark.name, "scored", report)


def cached_report(
    under_test: EncoderUnderTest, benchmark: PublishedBenchmark, data_hash: str, chosen: Mapping[str, Any], plan: Plan
) -> PublishedReport | None:
    """The result that scoring would only repeat, if there is one and it may be used."""
    path = report_path(under_test.name, benchmark.name, plan.results)
    if plan.again or not path.exists():
        return None
    report = read_published(path)
    same = report.is_of(under_test.sha256, benchmark.version, data_hash, dict(chosen))
    return report if same and (plan.allow_partial or not report.partial) else None


def run_all(under_test: EncoderUnderTest, benchmarks: Sequence[PublishedBenchmark], plan: Plan) -> list[Outcome]:
    """`run_one` for each; a benchmark that cannot be scored does not keep the others from it."""
    outcomes = []
    for benchmark in benchmarks:
        try:
            outcomes.append(run_one(under_test, benchmark, plan))
        except InputError as fault:
            outcomes.append(Outcome(benchmark.name, "failed", fault=" ".join(str(fault).split())))
    return outcomes


def _files_in(options: Mapping[str, Any]) -> list[str]:
    """Hashes of the files that options name, also as `<model>:<file>`, so that a changed file is a changed result."""
    named = (Path(part) for _, value in sorted(options.items()) for part in (str(value), str(value).partition(":")[2]))
    return [file_hash(path) for path in named if path.is_file()]
