"""Do encoders beat their base whatever the seed? Trains all of them anew with several seeds on the prepared data.

They train in `train.precision`. With `--precision bf16` they train in float32, and ParaCLIP also in bfloat16 on
the same bases: does that change its results? All are scored in float32. Needs `dvc repro` first, whose captions all
seeds share. Every seed's results are kept below `state/seeds`, so that a stopped run continues. The last line is one
JSON object.

    python -m tests.benchmarks.seeds --seeds 3 --precision bf16
    python -m tests.benchmarks.seeds --encoder base --encoder paraclip --encoder joint
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from components.base import base
from components.benchmarks.bootstrap import Interval, interval, paired_difference
from components.benchmarks.scores import Scores
from components.core.errors import run_command
from components.core.settings import Settings, load_settings
from components.encoders import embed
from components.evaluation import evaluate
from components.evaluation.results import Folders, read_report, read_scores
from components.training import train
from components.training.data import Files

MIXED = "paraclip in bf16"
SHOWN = (
    "paraphrased_retrieval/ao_at_10",
    "paraphrased_retrieval/js_at_10",
    "retrieval/t2i_recall_at_1",
    "retrieval/t2i_recall_at_5",
    "retrieval/i2t_recall_at_5",
    "retrieval_alt_text/t2i_recall_at_5",
    "zero_shot/top1",
    "swaps/relation_accuracy",
    "swaps/attribute_accuracy",
    "negations/original_over_negation",
    "caption_ratings/tau_c",
)
"""Those of them that all encoders were scored by are shown."""


@dataclass(frozen=True)
class Averaged:
    """A metric of one encoder over seeds.

    Attributes:
        mean: over the seeds, with the 95% interval over queries of each query's mean over the seeds; of a correlation,
            the means of the seeds' intervals.
        seeds: the value of each.
    """

    mean: Interval
    seeds: tuple[float, ...]


def run_seed(settings: Settings, seed: int, root: Path, encoders: Sequence[str]) -> Folders:
    """Train and score encoders, the base among them, with one seed."""
    folders = _folders(root / str(seed))
    seeded = _seeded(settings, seed, root / str(seed))
    if not (folders.models / "base" / "run.json").exists():
        base.run(seeded, folders.models / "base", folders.pairs)
    if not (folders.embeddings / "manifest.json").exists():
        embed.run(seeded, folders.embeddings, folders.pairs, folders.models / "base")
    for encoder in encoders:
        if encoder != "base":
            _train(encoder, seeded, folders, folders.models / "base")
    _score(seeded, folders, encoders)
    return folders


def run_mixed(settings: Settings, seed: int, root: Path) -> Folders:
    """Train ParaCLIP in bfloat16 on the float32 base and embeddings of the same seed, and score it in float32."""
    plain, home = _folders(root / str(seed)), root / f"{seed}-bf16"
    folders = replace(_folders(home), embeddings=plain.embeddings)
    seeded = _seeded(_in(settings, "bf16"), seed, home)
    _train("paraclip", seeded, folders, plain.models / "base")
    _score(seeded, folders, ("paraclip",))
    return folders


def _folders(home: Path) -> Folders:
    return Folders(models=home / "models", embeddings=home / "embeddings", reports=home / "reports")


def _seeded(settings: Settings, seed: int, home: Path) -> Settings:
    changes = {"seed": seed, "state": home / "state"}
    return settings.model_copy(update={"train": settings.train.model_copy(update=changes)})


def _in(settings: Settings, precision: str) -> Settings:
    return settings.model_copy(update={"train": settings.train.model_copy(update={"precision": precision})})


def _train(method: str, settings: Settings, folders: Folders, start: Path) -> None:
    if not (folders.models / method / "run.json").exists():
        reads = train.find_entry(settings, method).reads
        places = {"base": start, "embeddings": folders.embeddings, "pairs": folders.pairs, "models": folders.models}
        train.run(settings, method, Files(validated=reads, **places))


def _score(settings: Settings, folders: Folders, encoders: Sequence[str]) -> None:
    for encoder in encoders:
        if not (folders.metrics / f"{encoder}.json").exists():
            evaluate.run(settings, encoder, folders)


def averages(settings: Settings, encoder: str, runs: Sequence[Folders]) -> dict[str, Averaged]:
    """The metrics shown that an encoder was scored by, over the runs of all seeds."""
    reports = [read_report(encoder, run.metrics) for run in runs]
    scores = averaged_scores(encoder, runs)
    found = {}
    for metric in (metric for metric in SHOWN if metric in reports[0].metrics):
        results = [report.metrics[metric] for report in reports]
        if metric in scores.values:
            about = scores.strata.get(metric), scores.pictures.get(metric)
            mean = interval(scores.values[metric], settings.evaluate.bootstrap, settings.evaluate.seed, *about)
        else:
            mean = Interval(*np.mean([(result.value, *result.span) for result in results], axis=0).tolist())
        found[metric] = Averaged(mean, tuple(result.value for result in results))
    return found


def averaged_scores(encoder: str, runs: Sequence[Folders]) -> Scores:
    """Each query's mean over the runs."""
    scores = _scores(encoder, runs)
    names = [metric for metric in SHOWN if metric in scores[0].values]
    means = {metric: np.mean([score.values[metric] for score in scores], axis=0) for metric in names}
    return replace(scores[0], values=means)


def differences(
    settings: Settings, encoder: str, runs: Sequence[Folders], against: str, others: Sequence[Folders]
) -> dict[str, Interval]:
    """Metric -> the encoder of `runs` less `against` of `others`, averaged over the seeds as `averages` does."""
    resampling = settings.evaluate.bootstrap, settings.evaluate.seed
    own, theirs = averaged_scores(encoder, runs), averaged_scores(against, others)
    found = {}
    for metric, values in own.values.items():
        about = own.strata.get(metric), own.pictures.get(metric)
        found[metric] = paired_difference(values, theirs.values[metric], *resampling, *about)
    for metric in (metric for metric in SHOWN if metric in own.correlations):
        each = [
            paired_difference(
                *(one.correlations[metric] for one in both), *resampling, None, both[0].pictures.get(metric)
            )
            for both in zip(_scores(encoder, runs), _scores(against, others), strict=True)
        ]
        found[metric] = Interval(*np.mean([(one.value, one.low, one.high) for one in each], axis=0).tolist())
    return found


def _scores(encoder: str, runs: Sequence[Folders]) -> list[Scores]:
    return [read_scores(read_report(encoder, run.metrics), run.per_query) for run in runs]


def _shown(found: Interval, form: str) -> str:
    value, low, high = (format(100 * one, form) for one in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def _rounded(found: Interval) -> list[float]:
    return [round(value, 4) for value in (found.value, found.low, found.high)]


def show(found: Mapping[str, Mapping[str, Averaged]], less: Mapping[str, Mapping[str, Interval]], seeds: int) -> None:
    """Print a table of metrics by encoders."""
    columns = ("encoder", "metric", "mean [95% interval]", "each seed", "less the first [95% interval]")
    view = Table(*columns, title=f"{seeds} seeds, times 100")
    for encoder, metrics in found.items():
        for metric, average in metrics.items():
            each = ", ".join(f"{100 * value:.1f}" for value in average.seeds)
            difference = _shown(less[encoder][metric], "+.1f") if encoder in less else ""
            view.add_row(encoder, metric, _shown(average.mean, ".1f"), each, difference)
        view.add_section()
    Console().print(view)


def main(
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 3,
    precision: Annotated[
        Literal["bf16"] | None,
        typer.Option(help="Train in float32, and ParaCLIP in bfloat16, too, on the same bases."),
    ] = None,
    encoder: Annotated[
        list[str] | None, typer.Option(help="The base and what is trained on it; params.yaml's encoders by default.")
    ] = None,
    fresh: Annotated[bool, typer.Option(help="Forget earlier results first.")] = False,
) -> None:
    """Train encoders with several seeds and compare them, averaged over the seeds."""

    def command() -> None:
        settings, root = load_settings(), Path("state/seeds")
        # These runs are an experiment of their own: they must not stand among the product's runs.
        root.mkdir(parents=True, exist_ok=True)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{root / 'mlflow.db'}"
        if fresh:
            shutil.rmtree(root)
            root.mkdir()
        encoders = encoder or list(settings.encoders)
        if precision is not None:
            settings = _in(settings, "fp32")
        plain = [run_seed(settings, seed, root, encoders) for seed in range(seeds)]
        found = {name: averages(settings, name, plain) for name in encoders}
        less = {name: differences(settings, name, plain, encoders[0], plain) for name in encoders[1:]}
        told: dict[str, object] = {"seeds": seeds}
        if precision is not None:
            runs = [run_mixed(settings, seed, root) for seed in range(seeds)]
            found[MIXED] = averages(settings, "paraclip", runs)
            changed = differences(settings, "paraclip", runs, "paraclip", plain)
            told["bf16_less_fp32"] = {metric: _rounded(one) for metric, one in changed.items()}
        show(found, less, seeds)
        summary = {
            name: {metric: {"mean": _rounded(one.mean), "seeds": one.seeds} for metric, one in metrics.items()}
            for name, metrics in found.items()
        }
        told["less_first"] = {
            name: {metric: _rounded(one) for metric, one in metrics.items()} for name, metrics in less.items()
        }
        print(json.dumps(told | {"metrics": summary}))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
