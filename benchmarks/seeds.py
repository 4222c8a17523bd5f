"""Do encoders beat their base whatever the seed? Trains all of them with several seeds on the prepared data.

They train in `train.precision`. With `--precision bf16` they train in float32, and ParaCLIP also in bfloat16 on
the same bases: does that change its results? All are scored in float32. Needs `dvc repro` first, whose captions all
seeds share. Every seed's results are kept below `state/seeds`, so that a stopped run continues. The last line is one
JSON object.

    python -m benchmarks.seeds --seeds 3 --precision bf16
    python -m benchmarks.seeds --encoder base --encoder paraclip --encoder joint
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from components.core.settings import Settings, load_settings
from components.core.system.errors import run_command
from components.encoders import embed
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.bootstrap import Interval
from components.evaluation.scoring.results import Folders
from components.training import train
from components.training.base import base
from components.training.data import TrainingFiles
from components.training.methods.registry import find_entry
from research.claims.results import ClaimValue, Results, read_results

MIXED = "paraclip in bf16"
SHOWN = (
    "paraphrased_retrieval/ao_at_10",
    "paraphrased_retrieval/js_at_10",
    "written_paraphrases/ao_at_10",
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


def with_mixed(results: Results, mixed: Results) -> Results:
    """All results, and ParaCLIP's in bfloat16 under a name of their own."""
    return replace(
        results,
        reports={**results.reports, MIXED: mixed.reports["paraclip"]},
        scores={**results.scores, MIXED: mixed.scores["paraclip"]},
    )


def _folders(home: Path) -> Folders:
    return Folders(models=home / "models", embeddings=home / "embeddings", reports=home / "reports")


def _seeded(settings: Settings, seed: int, home: Path) -> Settings:
    train = settings.train.model_copy(update={"seed": seed, "checkpoint_dir": home / "state"})
    # The shipped base is of one seed.
    own = {"source": "scratch"} if settings.base.source == "shipped" else {}
    return settings.model_copy(update={"train": train, "base": settings.base.model_copy(update=own)})


def _in(settings: Settings, precision: str) -> Settings:
    return settings.model_copy(update={"train": settings.train.model_copy(update={"precision": precision})})


def _train(method: str, settings: Settings, folders: Folders, start: Path) -> None:
    if not (folders.models / method / "run.json").exists():
        reads = find_entry(settings.methods, method).reads
        places = {"base": start, "embeddings": folders.embeddings, "pairs": folders.pairs, "models": folders.models}
        train.run(settings, method, TrainingFiles(validated=reads, **places))


def _score(settings: Settings, folders: Folders, encoders: Sequence[str]) -> None:
    for encoder in encoders:
        if not (folders.metrics / f"{encoder}.json").exists():
            evaluate.run(settings, encoder, folders)


def _shown(found: Interval, form: str) -> str:
    value, low, high = (format(100 * one, form) for one in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def rounded(found: ClaimValue) -> dict[str, list[float]]:
    """The mean with its interval, and each seed's value."""
    mean = [round(value, 4) for value in (found.mean.value, found.mean.low, found.mean.high)]
    return {"mean": mean, "seeds": [round(value, 4) for value in found.each]}


def show(results: Results, metrics: Sequence[str]) -> None:
    """Print a table of metrics by encoders."""
    columns = ("encoder", "metric", "mean [95% interval]", "each seed", "less the first [95% interval]")
    view = Table(*columns, title=f"{results.seeds} seeds, times 100")
    for encoder in results.encoders:
        for metric in metrics:
            average = results.value(encoder, metric)
            each = ", ".join(f"{100 * value:.1f}" for value in average.each)
            less = results.difference(encoder, results.encoders[0], metric) if encoder != results.encoders[0] else None
            view.add_row(encoder, metric, _shown(average.mean, ".1f"), each, _shown(less.mean, "+.1f") if less else "")
        view.add_section()
    Console().print(view)


def main(
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 3,
    precision: Annotated[
        Literal["bf16"] | None,
        typer.Option(help="Train in float32, and ParaCLIP in bfloat16, too, on the same bases."),
    ] = None,
    encoder: Annotated[
        list[str] | None, typer.Option(help="The base and encoders trained on it; those of params.yaml by default.")
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
        encoders = encoder or list(settings.compare_encoders)
        if precision is not None:
            settings = _in(settings, "fp32")
        plain = [run_seed(settings, seed, root, encoders) for seed in range(seeds)]
        results = read_results(encoders, plain, settings.evaluate)
        result: dict[str, object] = {"seeds": seeds}
        if precision is not None:
            runs = [run_mixed(settings, seed, root) for seed in range(seeds)]
            results = with_mixed(results, read_results(["paraclip"], runs, settings.evaluate))
        metrics = [metric for metric in SHOWN if all(results.measures(name, metric) for name in results.encoders)]
        show(results, metrics)
        if precision is not None:
            result["bf16_less_fp32"] = {one: rounded(results.difference(MIXED, "paraclip", one)) for one in metrics}
        result["metrics"] = {
            name: {one: rounded(results.value(name, one)) for one in metrics} for name in results.encoders
        }
        result["less_first"] = {
            name: {one: rounded(results.difference(name, encoders[0], one)) for one in metrics}
            for name in results.encoders[1:]
        }
        print(json.dumps(result))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
