"""Does ParaCLIP beat its base whatever the seed? Trains both anew with several seeds on the prepared data.

Needs `dvc repro` first. Every seed's results are kept below `state/seeds`, so that a stopped run continues.
The last line is one JSON object.

    python -m tests.benchmarks.seeds --seeds 3
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from components.base import base
from components.benchmarks.bootstrap import interval
from components.core.errors import run_command
from components.core.settings import Settings, load_settings
from components.encoders import embed
from components.evaluation import evaluate
from components.evaluation.results import Folders, read_report, read_scores
from components.training import train
from components.training.data import Files

ENCODERS = ("base", "paraclip")
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
    """Train and score base and ParaCLIP with one seed."""
    home = root / str(seed)
    folders = Folders(models=home / "models", embeddings=home / "embeddings", reports=home / "reports")
    seeded = settings.model_copy(
        update={"train": settings.train.model_copy(update={"seed": seed, "state": home / "state"})}
    )
    if not (folders.models / "base" / "run.json").exists():
        base.run(seeded, folders.models / "base", folders.pairs)
    if not (folders.embeddings / "manifest.json").exists():
        embed.run(seeded, folders.embeddings, folders.pairs, folders.models / "base")
    if not (folders.models / "paraclip" / "run.json").exists():
        files = Files(
            base=folders.models / "base", embeddings=folders.embeddings, pairs=folders.pairs, models=folders.models
        )
        train.run(seeded, "paraclip", files)
    for encoder in ENCODERS:
        if not (folders.metrics / f"{encoder}.json").exists():
            evaluate.run(seeded, encoder, folders)
    return folders


def summarise(settings: Settings, runs: list[Folders]) -> dict[str, dict[str, list[float]]]:
    """Metric -> encoder -> mean over seeds and 95% interval over queries of each query's mean over seeds."""
    summary: dict[str, dict[str, list[float]]] = {}
    for encoder in ENCODERS:
        scores = [read_scores(read_report(encoder, run.metrics), run.per_query) for run in runs]
        for metric in SHOWN:
            values = np.mean([score.values[metric] for score in scores], axis=0)
            found = interval(values, settings.evaluate.bootstrap, settings.evaluate.seed)
            summary.setdefault(metric, {})[encoder] = [round(v, 4) for v in (found.value, found.low, found.high)]
    return summary


def main(
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 3,
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
        summary = summarise(settings, [run_seed(settings, seed, root) for seed in range(seeds)])
        view = Table("metric", *ENCODERS, title=f"mean over {seeds} seeds with 95% intervals, in percent")
        for metric, rows in summary.items():
            cells = (f"{100 * v:.1f} [{100 * low:.1f}, {100 * high:.1f}]" for v, low, high in rows.values())
            view.add_row(metric, *cells)
        Console().print(view)
        print(json.dumps({"seeds": seeds, "metrics": summary}))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
