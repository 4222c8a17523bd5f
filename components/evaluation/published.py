"""Score one encoder on published benchmarks and keep its results; what has a result already is left alone."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from components.benchmarks.encoding.context import EncoderUnderTest
from components.benchmarks.encoding.image_features import ImageFeatures
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.published import PublishedBenchmark
from components.benchmarks.scores import Scores
from components.core.errors import InputError
from components.core.files import atomic_file, content_hash, file_hash
from components.core.record_files import read_record, write_record
from components.evaluation.results import Result, read_values, summarise, write_values
from components.tracking import add_metrics

FOLDER = Path("reports/published")
_FIX = "run `cliptune evaluate --again`"


class PublishedReport(BaseModel):
    """One encoder on one benchmark.

    Attributes:
        encoder: its name.
        encoder_sha256: hash of everything its results depend on.
        benchmark: the benchmark's name.
        version: of the benchmark's protocol.
        protocol: whose rules were followed.
        data_hash: of the benchmark's files.
        partial: what was amiss with the data; results with anything here are not comparable with published ones.
        options: what the user chose for this benchmark.
        left_out: groups of metrics without values, each with the reason.
        precision: what the encoder computed in; published figures are compared with `fp32`.
        seconds: how long it took, features from the cache included.
        metrics: by full name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str
    encoder_sha256: str
    benchmark: str
    version: int
    protocol: str
    data_hash: str
    partial: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    left_out: tuple[str, ...] = ()
    precision: str = "fp32"
    seconds: float
    metrics: dict[str, Result]

    @property
    def evaluation(self) -> str:
        """Hash of what the values per query must belong to."""
        options = json.dumps(self.options, sort_keys=True)
        return content_hash(self.encoder_sha256, str(self.version), self.data_hash, options)

    def is_of(self, encoder_sha256: str, version: int, data_hash: str, options: dict[str, Any]) -> bool:
        """Whether scoring again would give the same."""
        mine = (self.encoder_sha256, self.version, self.data_hash, self.options)
        return mine == (encoder_sha256, version, data_hash, options)


def report_path(encoder: str, encoder_sha256: str, benchmark: str, folder: Path = FOLDER) -> Path:
    """Where one result is: `<folder>/<encoder>/<start of the hash>/<benchmark>.json`.

    Weights that share a name, such as before and after training again, each keep their results.
    """
    return folder / encoder / encoder_sha256[:8] / f"{benchmark}.json"


def _path_of(report: PublishedReport, folder: Path) -> Path:
    return report_path(report.encoder, report.encoder_sha256, report.benchmark, folder)


def write_published(report: PublishedReport, scores: Scores, folder: Path = FOLDER) -> Path:
    """Write values per query as safetensors and then the report, each whole or not at all; returns its path."""
    path = _path_of(report, folder)
    write_values(scores, path.with_suffix(".safetensors"), report.evaluation)
    write_record(path, report)
    return path


def write_lists(
    lists: Mapping[str, Sequence[tuple[str, ...]]], encoder: str, benchmark: str, folder: Path = FOLDER
) -> None:
    """Write `PublishedContext.lists`: `<folder>/<what>/<encoder>/<benchmark>.tsv`, a row of texts on each line."""
    for what, rows in lists.items():
        lines = ("\t".join(" ".join(text.split()) for text in row) for row in rows)
        with atomic_file(folder / what / encoder / f"{benchmark}.tsv") as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_published_values(report: PublishedReport, folder: Path = FOLDER) -> Scores:
    """The values per query behind one result.

    Raises:
        InputError: they are missing, damaged, or belong to another evaluation.
    """
    path = _path_of(report, folder).with_suffix(".safetensors")
    return read_values(path, report.evaluation, _FIX)


def read_published(path: Path) -> PublishedReport:
    """Read one result.

    Raises:
        InputError: it is missing or damaged.
    """
    return read_record(PublishedReport, path, "delete it and run `cliptune evaluate` again")


def all_published(folder: Path = FOLDER) -> list[PublishedReport]:
    """Every result below `folder`, by encoder, weights and benchmark.

    Raises:
        InputError: one is damaged.
    """
    return [read_published(path) for path in sorted(folder.glob("*/*/*.json"))]


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
    try:
        scores = benchmark.score(context)
    finally:
        # A benchmark may lack the answers to these.
        write_lists(context.lists, under_test.name, benchmark.name, plan.results)
    report = PublishedReport(
        encoder=under_test.name,
        encoder_sha256=under_test.sha256,
        benchmark=benchmark.name,
        version=benchmark.version,
        protocol=benchmark.protocol,
        data_hash=data_hash,
        partial=tuple(context.notes),
        options=chosen,
        left_out=tuple(context.left_out),
        precision=under_test.precision,
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
    path = report_path(under_test.name, under_test.sha256, benchmark.name, plan.results)
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
