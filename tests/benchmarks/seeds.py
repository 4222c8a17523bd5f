"""Does ParaCLIP beat its base whatever the seed? Trains both anew with several seeds on the prepared data.

With `--precision bf16` ParaCLIP is also trained in bfloat16, on the same bases: does that change its results? All are
scored in float32. Needs `dvc repro` first. Every seed's results are kept below `state/seeds`, so that a stopped run
continues. The last line is one JSON object.

    python -m tests.benchmarks.seeds --seeds 3 --precision bf16
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from components.base import base
from components.benchmarks.bootstrap import Interval, interval, paired_difference
from components.core.errors import run_command
from components.core.metrics import Reals
from components.core.settings import Settings, load_settings
from components.encoders import embed
from components.evaluation import evaluate
from components.evaluation.results import Folders, read_report, read_scores
from components.training import train
from components.training.data import Files

ENCODERS = ("base", "paraclip")
MIXED = "paraclip in bf16"
SHOWN = (
    "paraphrased_retrieval/ao_at_10",
    "paraphrased_retrieval/js_at_10",
    "retrieval/t2i_recall_at_5",
    "retrieval_alt_text/t2i_recall_at_5",
    "zero_shot/top1",
    "swaps/relation_accuracy",
    "swaps/attribute_accuracy",
)


def run_seed(settings: Settings, seed: int, root: Path) -> Folders:
    """Train and score base and ParaCLIP with one seed, in float32."""
    folders = _folders(root / str(seed))
    seeded = _seeded(settings, seed, root / str(seed), "fp32")
    if not (folders.models / "base" / "run.json").exists():
        base.run(seeded, folders.models / "base", folders.pairs)
    if not (folders.embeddings / "manifest.json").exists():
        embed.run(seeded, folders.embeddings, folders.pairs, folders.models / "base")
    _paraclip(seeded, folders, folders.models / "base")
    _score(seeded, folders, ENCODERS)
    return folders


def run_mixed(settings: Settings, seed: int, root: Path) -> Folders:
    """Train ParaCLIP in bfloat16 on the float32 base and embeddings of the same seed, and score it in float32."""
    plain, home = _folders(root / str(seed)), root / f"{seed}-bf16"
    folders = replace(_folders(home), embeddings=plain.embeddings)
    seeded = _seeded(settings, seed, home, "bf16")
    _paraclip(seeded, folders, plain.models / "base")
    _score(seeded, folders, ("paraclip",))
    return folders


def _folders(home: Path) -> Folders:
    return Folders(models=home / "models", embeddings=home / "embeddings", reports=home / "reports")


def _seeded(settings: Settings, seed: int, home: Path, precision: str) -> Settings:
    changes = {"seed": seed, "state": home / "state", "precision": precision}
    return settings.model_copy(update={"train": settings.train.model_copy(update=changes)})


def _paraclip(settings: Settings, folders: Folders, start: Path) -> None:
    if not (folders.models / "paraclip" / "run.json").exists():
        files = Files(base=start, embeddings=folders.embeddings, pairs=folders.pairs, models=folders.models)
        train.run(settings, "paraclip", files)


def _score(settings: Settings, folders: Folders, encoders: Sequence[str]) -> None:
    for encoder in encoders:
        if not (folders.metrics / f"{encoder}.json").exists():
            evaluate.run(settings, encoder, folders)


def values_of(encoder: str, runs: Sequence[Folders]) -> dict[str, Reals]:
    """Metric -> each query's mean over the runs."""
    scores = [read_scores(read_report(encoder, run.metrics), run.per_query) for run in runs]
    return {metric: np.mean([score.values[metric] for score in scores], axis=0) for metric in SHOWN}


def summarise(settings: Settings, found: Mapping[str, Mapping[str, Reals]]) -> dict[str, dict[str, list[float]]]:
    """Metric -> encoder -> mean over seeds and 95% interval over queries of each query's mean over seeds."""
    return {
        metric: {
            encoder: _rounded(interval(values[metric], settings.evaluate.bootstrap, settings.evaluate.seed))
            for encoder, values in found.items()
        }
        for metric in SHOWN
    }


def differences(settings: Settings, found: Mapping[str, Mapping[str, Reals]]) -> dict[str, list[float]]:
    """Metric -> ParaCLIP trained in bfloat16 less ParaCLIP trained in float32, with its paired 95% interval."""
    resampling = settings.evaluate.bootstrap, settings.evaluate.seed
    return {
        metric: _rounded(paired_difference(found[MIXED][metric], found["paraclip"][metric], *resampling))
        for metric in SHOWN
    }


def _rounded(found: Interval) -> list[float]:
    return [round(value, 4) for value in (found.value, found.low, found.high)]


def main(
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 3,
    precision: Annotated[
        Literal["fp32", "bf16"], typer.Option(help="bf16: also train ParaCLIP in bfloat16 on the same bases.")
    ] = "fp32",
    fresh: Annotated[bool, typer.Option(help="Forget earlier results first.")] = False,
) -> None:
    """Train base and ParaCLIP with several seeds and compare them, averaged over the seeds."""

    def command() -> None:
        settings, root = load_settings(), Path("state/seeds")
        # These runs are an experiment of their own: they must not stand among the product's runs.
        root.mkdir(parents=True, exist_ok=True)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{root / 'mlflow.db'}"
        if fresh:
            shutil.rmtree(root)
            root.mkdir()
        plain = [run_seed(settings, seed, root) for seed in range(seeds)]
        found = {encoder: values_of(encoder, plain) for encoder in ENCODERS}
        told: dict[str, object] = {"seeds": seeds}
        if precision == "bf16":
            found[MIXED] = values_of("paraclip", [run_mixed(settings, seed, root) for seed in range(seeds)])
            told["bf16_less_fp32"] = differences(settings, found)
        summary = summarise(settings, found)
        view = Table("metric", *found, title=f"mean over {seeds} seeds with 95% intervals, in percent")
        for metric, rows in summary.items():
            cells = (f"{100 * v:.1f} [{100 * low:.1f}, {100 * high:.1f}]" for v, low, high in rows.values())
            view.add_row(metric, *cells)
        Console().print(view)
        print(json.dumps(told | {"metrics": summary}))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
