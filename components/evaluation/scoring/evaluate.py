"""Stage `evaluate`: score one encoder on every chosen benchmark.

python -m components.evaluation.scoring.evaluate --encoder base
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from components.core.compute.devices import computing_on, pick_device
from components.core.compute.metrics import Features
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.settings import Evaluate, Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError, printable
from components.core.system.project import run_in_project, start
from components.core.tables.files import content_hash, file_hash
from components.core.tables.records import PAIRS
from components.core.tables.written_queries import SUMMARY, read_summary
from components.core.tracking import add_metrics, tracked_run
from components.encoders.adapter.encoder import Encoder
from components.encoders.embeddings import ImageEmbeddings, require_finite
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project import ProjectBenchmark, find_benchmark, table_files
from components.evaluation.scoring.benchmark import Scores, tracked_metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.results import DEFAULT, Folders, Report, Result, results_of, summarise, write_results
from components.evaluation.scoring.terminal import print_results


def run(settings: Settings, name: str, folders: Folders = DEFAULT) -> Report:
    """Score encoder `name`; writes and returns its report."""
    if Path(name).name != name:
        raise InputError(
            f"'{name}' is not an encoder's name: give the name of a folder in {folders.models}, such as base"
        )
    benchmarks = [find_benchmark(benchmark) for benchmark in settings.evaluate.benchmarks]
    tables = table_files(benchmarks, folders.evaluation)
    encoder = Encoder.load(folders.models / name).to(pick_device(settings.device))
    under_test = EncoderUnderTest(name, encoder, encoder.sidecar.weights_sha256)
    gallery = image_features(encoder, folders.embeddings, folders.test_pairs, settings.embed.batch_size)
    report, scores = score_all(under_test, gallery, benchmarks, tables, settings.evaluate, folders)
    write_results(report, scores, folders.metrics, folders.per_query)
    _track(report, benchmarks, folders)
    return report


def score_all(
    under_test: EncoderUnderTest,
    gallery: tuple[Sequence[str], Features],
    benchmarks: Sequence[ProjectBenchmark],
    tables: Sequence[Path],
    options: Evaluate,
    folders: Folders,
) -> tuple[Report, Scores]:
    """The report of an encoder on all benchmarks, and the values behind it.

    Args:
        gallery: ids and unit features `[images, dim]` of the test pictures by the encoder's image tower.
        tables: files of the benchmarks, see `table_files`.
    """
    context = ProjectContext(under_test, folders.evaluation, options.top_k, *gallery)
    with computing_on(under_test.device):
        scores, results = score(benchmarks, context, options)
    # Who wrote the test queries, if a language model did.
    written = next((path.parent for path in tables if (path.parent / SUMMARY).is_file()), None)
    report = Report(
        encoder=under_test.name,
        protocol=" ".join(_protocol(benchmark, scores) for benchmark in benchmarks),
        data_hash=content_hash(
            *(part for path in (folders.test_pairs, *tables) for part in (path.name, file_hash(path)))
        ),
        encoder_sha256=under_test.sha256,
        test_queries="" if written is None else str(read_summary(written) or ""),
        metrics=results,
    )
    return report, scores


def run_tracked(settings: Settings, name: str) -> Report:
    """`run` as an MLflow run of its own, besides the metrics in the run that trained the encoder."""
    inputs = {"encoder": DEFAULT.models / name, "pairs": DEFAULT.test_pairs, "evaluation": DEFAULT.evaluation}
    params = settings.evaluate.model_dump(mode="json")
    with tracked_run("evaluate", name, settings, params, inputs) as tracked:
        begun = time.monotonic()
        report = run(settings, name)
        benchmarks = [find_benchmark(benchmark) for benchmark in settings.evaluate.benchmarks]
        decisive = tracked_metrics(benchmarks, list(report.metrics))
        tracked.log_metrics({metric: report.metrics[metric].value for metric in decisive})
        tracked.log_speed(max((result.queries or 0 for result in report.metrics.values()), default=0), begun)
        tracked.log_output(DEFAULT.metrics / report.file)
    return report


def _track(report: Report, benchmarks: Sequence[ProjectBenchmark], folders: Folders) -> None:
    """Log the decisive metrics to the encoder's MLflow run, and all metrics as a table."""
    few = tracked_metrics(benchmarks, list(report.metrics))
    results = report.metrics.values()
    table: dict[str, list[Any]] = {
        "metric": list(report.metrics),
        "value": [result.value for result in results],
        "low": [result.span[0] for result in results],
        "high": [result.span[1] for result in results],
    }
    # A run keeps its tables, and a second evaluation with the same title would be appended to the first.
    title = f"evaluation_{content_hash(report.model_dump_json())[:8]}"
    add_metrics(folders.models / report.encoder, {name: report.metrics[name].value for name in few}, {title: table})


def image_features(
    encoder: Encoder, embeddings: Path, pairs_file: Path, batch_size: int
) -> tuple[Sequence[str], Features]:
    """Ids and unit features `[images, dim]` of the images in `<split>.parquet` by this encoder's image tower.

    Without the folder `embeddings` the pictures are embedded, as for another image tower.
    """
    stored = ImageEmbeddings.open(embeddings, pairs_file.stem, pairs_file) if embeddings.is_dir() else None
    if stored is not None and stored.image_tower_sha256 == encoder.sidecar.image_tower_sha256:
        ids, features = stored.image_ids, np.asarray(stored.features)
    else:
        pairs = PAIRS.read(pairs_file, PICTURE)
        with Pictures() as pictures:
            ids, images = pairs["image_id"].to_pylist(), pictures.of(pairs)
        features = encoder.embed_images(images, batch_size, "embed test images", ids)
    require_finite(features, encoder.sidecar.name, "picture", ids)
    return ids, features


def score(
    benchmarks: Sequence[ProjectBenchmark], context: ProjectContext, settings: Evaluate
) -> tuple[Scores, dict[str, Result]]:
    """The scores of all benchmarks, and every metric's result in the order reported."""
    scores, results = Scores({}), dict[str, Result]()
    for benchmark in benchmarks:
        of_benchmark = benchmark.score(context)
        scores.update(of_benchmark)
        results |= summarise(benchmark, of_benchmark, settings.bootstrap, settings.seed)
    return scores, results


def _protocol(benchmark: ProjectBenchmark, scores: Scores) -> str:
    """Name and version; `+pictures` if intervals resample pictures, because a picture has several queries."""
    resampled = any(name.startswith(benchmark.name) for name in scores.pictures)
    return f"{benchmark.name}={benchmark.version}{'+pictures' if resampled else ''}"


def print_report(report: Report) -> None:
    """Print one encoder's values over all queries, with their intervals."""
    table = results_of(report, f"{report.encoder}, values times 100")
    print_results(table)
    print(f"{len(report.metrics) - len(table.rows)} more by group in the metrics file")
    if report.test_queries:
        print(printable(report.test_queries))


def main(encoder: Annotated[str, typer.Option(help="Name of a folder in models/, such as base or paraclip.")]) -> None:
    """Score one encoder on every benchmark of evaluate.benchmarks and print its results.

    Example: python -m components.evaluation.scoring.evaluate --encoder base
    """
    run_in_project(lambda: print_report(run_tracked(load_checked(entries=()), encoder)))


if __name__ == "__main__":
    start(main)
