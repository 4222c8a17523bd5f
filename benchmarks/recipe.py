"""Which learning rate and how many epochs suit how many rows? ParaCLIP on photographs with people's paraphrases.

Run it in a project where profile `flickr8k` is applied and `dvc repro embed` has run: people's captions stand for
paraphrases, so that no language model limits the number of rows. Every encoder is scored on the validation split by
agreement (AO@10) and by recall@5 of texts to images. A stopped run resumes: the output has a line of
JSON per encoder.

    python -m benchmarks.recipe --output recipe.jsonl
"""

from __future__ import annotations

import json
import shutil
import time
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from components.core.settings import Settings, load_settings
from components.core.system.errors import run_command
from components.core.tables.folders import BASE, PAIRS
from components.core.tables.records import PEOPLE_PARAPHRASES, key_of
from components.encoders.adapter.encoder import Encoder
from components.evaluation.tuning.search import MixEvaluator
from components.training.data import TrainingFiles
from components.training.train import run as train

FAMILIES = {"ao_at_10": "paraphrased_retrieval/ao_at_10", "recall_at_5": "retrieval/t2i_recall_at_5"}
PLANS = {1000: ((10, 20), (5e-6, 2e-5, 8e-5)), 5000: ((4,), (2e-6, 5e-6, 2e-5)), 20000: ((4,), (2e-6, 5e-6, 2e-5))}
"""Rows of the table -> epochs and learning rates to try; an epoch visits every image once."""
_STATE = Path("state/recipe")


def _table(rows: int, seed: int = 0) -> Path:
    """A table of so many rows, of as many images as possible."""
    path = _STATE / str(rows) / f"{key_of(PEOPLE_PARAPHRASES)}.parquet"
    if not path.is_file():
        source = PAIRS / path.name
        frame = PEOPLE_PARAPHRASES.read(source).to_pandas()
        images = dict(zip(*(_pairs()[name] for name in ("id", "image_id")), strict=True))
        shuffled = frame.sample(frac=1, random_state=seed)
        turn = shuffled.groupby(shuffled["id"].map(images)).cumcount()
        chosen = shuffled.assign(turn=turn).sort_values("turn", kind="stable").head(rows)
        PEOPLE_PARAPHRASES.write(path, chosen[PEOPLE_PARAPHRASES.schema.names].to_dict("list"))
    return path


def _pairs() -> dict[str, list[Any]]:
    from components.core.tables.records import PAIRS as TABLE

    columns: dict[str, list[Any]] = TABLE.read(PAIRS / "train.parquet", ["id", "image_id"]).to_pydict()
    return columns


def _tried(settings: Settings, rows: int, epochs: int, lr: float, batch: int) -> Encoder:
    table = _table(rows)
    entry = {"method": "paraclip", "train_data": str(table), "lr": lr, "epochs": epochs, "batch_size": batch}
    changed = settings.model_copy(update={"methods": {"tried": entry | {"warmup_steps": 5}}})
    train(changed, "tried", TrainingFiles(validated=table, models=_STATE))
    return Encoder.load(_STATE / "tried")


def _measure(output: Path) -> None:
    settings = load_settings()
    base = Encoder.load(BASE)
    scorer = MixEvaluator.of(settings, FAMILIES, base)
    done = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    known = {(row["rows"], row["epochs"], row["lr"]) for row in done}
    plans = [(0, 0, 0.0), *((rows, *plan) for rows, tried in PLANS.items() for plan in product(*tried))]
    for rows, epochs, lr in plans:
        if (rows, epochs, lr) in known:
            continue
        started, batch = time.perf_counter(), 256 if rows > 1000 else 128
        encoder = _tried(settings, rows, epochs, lr, batch) if rows else base
        found = {"rows": rows, "epochs": epochs, "lr": lr, "batch_size": batch}
        found |= {name: round(float(np.float64(value)), 4) for name, value in scorer.scores(encoder).items()}
        found |= {"seconds": round(time.perf_counter() - started, 1)}
        with output.open("a") as stream:
            stream.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)
    shutil.rmtree(_STATE, ignore_errors=True)


def main(output: Annotated[Path, typer.Option(help="File of results, one JSON object per line.")]) -> None:
    """Train ParaCLIP with every learning rate, number of epochs and number of rows, and score each encoder.

    Example: python -m benchmarks.recipe --output recipe.jsonl
    """
    run_command(lambda: _measure(output))


if __name__ == "__main__":
    typer.run(main)
