"""How many differences does PC-CLIP's arithmetic need in the synthetic dataset, and does the writer matter?

Trains entry `pc_clip` of profile `methods` on differences that are written by rule from the facts of training scenes,
in sentence frames of their own: nothing but their number and their truth differs from those of the language model.
Besides the benchmark, whose frames no training has, every encoder is scored on test scenes in these frames. Needs
`dvc repro embed` first, and `dvc repro validate@differences` for the row of the language model. The last line is one
JSON object.

    python -m benchmarks.differences --rows 945 --rows 20000
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
import yaml
from rich.console import Console
from rich.table import Table

from components.core.settings import Settings, load_settings
from components.core.system.errors import run_command
from components.core.tables import folders
from components.core.tables.records import DIFFERENCES, PAIRS
from components.data.world.description.difference_text import KINDS, contrast
from components.data.world.description.scenes import Scene
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.protocols.geometry import classified, margins
from components.evaluation.scoring.results import Folders, Report
from components.training import train
from components.training.data import TrainingFiles

_FRAMES = {
    "size": (
        "The {x} in the first image is larger than the {y} in the second.",
        "The second has a smaller {y} than the first.",
    ),
    "background": (
        "The first image has {x} behind it, while the second has {y}.",
        "Behind the first is {x}, behind the second {y}.",
    ),
    "position": (
        "What the first image shows lies in the {x}, in the second it lies in the {y}.",
        "The first puts it in the {x}, the second in the {y}.",
    ),
    "object": (
        "There is {x} in the first image, while there is {y} in the second.",
        "The first depicts {x}, the second {y}.",
    ),
}
_ASKED = 2_000
SHOWN = (
    "differences/accuracy",
    "differences/sign_accuracy",
    "differences/size_ordering_accuracy",
    *(f"differences/kind_{kind}/accuracy" for kind in KINDS),
)


def written(pairs: Path, count: int, seed: int) -> pa.Table:
    """`count` rows of `DIFFERENCES` about two training scenes each, in one respect drawn per row."""
    table = PAIRS.read(pairs, ["id", "caption", "facts"]).to_pandas()
    first, second, texts = _drawn(table["facts"], count, seed)
    found, other = table.iloc[first], table.iloc[second]
    return pa.table(
        {
            "id": found["id"].tolist(),
            "other_id": other["id"].tolist(),
            "sample": [0] * count,
            "caption": found["caption"].tolist(),
            "other_caption": other["caption"].tolist(),
            "difference": texts,
            "similarity": [1.0] * count,
        },
        schema=DIFFERENCES.schema,
    )


def own_frames(settings: Settings, name: str, folders: Folders) -> float:
    """Share of sentences in the frames of training that point where the difference of their two test scenes does."""
    encoder = Encoder.load(folders.models / name)
    ids, features = evaluate.image_features(encoder, folders.embeddings, folders.test_pairs, settings.embed.batch_size)
    place = {image: row for row, image in enumerate(ids)}
    table = PAIRS.read(folders.test_pairs, ["image_id", "facts"])
    first, second, texts = _drawn(table["facts"].to_pylist(), _ASKED, settings.train.seed)
    rows = [place[image] for image in table["image_id"].to_pylist()]
    shown = (features[[rows[scene] for scene in scenes]] for scenes in (first, second))
    return float(classified(margins(*shown, encoder.embed_texts(texts)), "wrong").mean())


def _drawn(facts: Iterable[str], count: int, seed: int) -> tuple[list[int], list[int], list[str]]:
    """Places of two scenes in each row, and how they differ."""
    scenes = [Scene.from_json(text) for text in facts]
    first, second, texts = zip(*_rows(scenes, count, random.Random(seed)), strict=True)
    return list(first), list(second), list(texts)


def _rows(scenes: list[Scene], count: int, rng: random.Random) -> Iterator[tuple[int, int, str]]:
    by_object: dict[str, list[int]] = defaultdict(list)
    for place, scene in enumerate(scenes):
        for name in scene.names:
            by_object[name].append(place)
    while count:
        kind, one = rng.choice(KINDS), rng.randrange(len(scenes))
        other = rng.choice(by_object[rng.choice(scenes[one].names)]) if kind == "size" else rng.randrange(len(scenes))
        found = contrast(kind, scenes[one], scenes[other], rng)
        if found is not None:
            count -= 1
            yield one, other, rng.choice(_FRAMES[kind]).format(x=found[0], y=found[1])


def run(settings: Settings, name: str, validated: Path, root: Path) -> Report:
    """Train `pc_clip` on the table in `validated`, and score it on the test scenes' differences."""
    folders = Folders(models=root / "models", reports=root / name / "reports")
    if not (folders.models / name / "run.json").exists():
        train.run(settings, name, TrainingFiles(validated=validated, models=folders.models))
    return evaluate.run(settings, name, folders)


def _with_entries(settings: Settings, names: list[str], root: Path, hyper: dict[str, Any]) -> Settings:
    """Settings with entry `pc_clip`, changed by `hyper`, under every name, and one benchmark."""
    entry = settings.methods["pc_clip"] | hyper
    return settings.model_copy(
        update={
            "methods": settings.methods | dict.fromkeys(names, entry),
            "train": settings.train.model_copy(update={"checkpoint_dir": root / "state"}),
            "evaluate": settings.evaluate.model_copy(update={"benchmarks": ("differences",)}),
        }
    )


def main(
    rows: Annotated[list[int] | None, typer.Option(help="How many differences; give it again for more.")] = None,
    set_to: Annotated[list[str] | None, typer.Option("--set", help="A hyper-parameter, such as scope=tower.")] = None,
    root: Annotated[Path, typer.Option(help="Where encoders and results are kept.")] = Path("state/differences"),
) -> None:
    """Score base, the language model's differences, and as many differences by rule as `--rows` sets."""

    def command() -> None:
        hyper = {key: yaml.safe_load(value) for key, _, value in (one.partition("=") for one in set_to or [])}
        kind = "".join(f"-{key}-{value}" for key, value in hyper.items())
        names = {f"rule{kind}-{count}": count for count in rows or (945, 5_000, 20_000)}
        settings = _with_entries(load_settings(), [*names, f"llm{kind}"], root, hyper)
        # These runs are an experiment of their own: they must not stand among the product's runs.
        (root / "models").mkdir(parents=True, exist_ok=True)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{root / 'mlflow.db'}"
        shutil.copytree(folders.BASE, root / "models" / "base", dirs_exist_ok=True)
        tables = {f"llm{kind}": folders.VALIDATED / "pc_clip"}
        for name, count in names.items():
            tables[name] = root / name
            tables[name].mkdir(exist_ok=True)
            table = written(folders.PAIRS / "train.parquet", count, settings.train.seed)
            DIFFERENCES.write(tables[name] / "differences.parquet", table)
        reports = [evaluate.run(settings, "base", Folders(models=root / "models", reports=root / "base"))]
        reports += [run(settings, name, folder, root) for name, folder in tables.items()]
        own = [own_frames(settings, report.encoder, Folders(models=root / "models")) for report in reports]
        titles = (*(metric.removeprefix("differences/") for metric in SHOWN), "training's frames, sign")
        view = Table("encoder", *titles, title="in percent, with half-widths")
        for report, share in zip(reports, own, strict=True):
            found = [report.metrics[metric] for metric in SHOWN]
            cells = (f"{100 * one.value:.1f} ±{50 * (one.span[1] - one.span[0]):.1f}" for one in found)
            view.add_row(report.encoder, *cells, f"{100 * share:.1f}")
        Console().print(view)
        result = {
            report.encoder: {metric: round(report.metrics[metric].value, 4) for metric in SHOWN}
            | {"training_frames_sign_accuracy": round(share, 4)}
            for report, share in zip(reports, own, strict=True)
        }
        print(json.dumps(result))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
