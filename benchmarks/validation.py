"""Rows per second and peak memory of the validate stage, without MiniLM, over tables of two sizes.

python -m benchmarks.validation
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from more_itertools import batched

from components.captions.validation import validate
from components.captions.validation.rules.measuring.probes import Probes
from components.captions.validation.validate import ValidationFiles
from components.core.settings import Settings, load_settings
from components.core.tables.files import write_json
from components.core.tables.folders import SUMMARY
from components.core.tables.records import GENERATIONS, PAIRS
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.sidecar import SIDECAR, Sidecar

ROWS = (100_000, 1_000_000)
TABLE = "paraphrases"
TASKS = ("paraphrase_1", "paraphrase_2")
SAMPLES = 2
_BLOCK = 50_000
_SUBJECTS = ("a dog", "a cat", "an old bus", "a small boat", "a tall lamp", "a red kite", "a drum", "a bee")
_PLACES = ("near a tree", "on the table", "in the rain", "under a bridge", "beside the road", "at the harbour")
_MANNERS = ("seen from above", "in warm light", "on a cold morning", "painted by hand", "with nobody around")


@dataclass(frozen=True)
class Point:
    """One run of the stage in a process of its own; memory in MB (10^6 bytes), libraries included."""

    rows: int
    accepted: int
    seconds: float
    rows_per_s: int
    idle_mb: int
    peak_mb: int


def write_world(root: Path, rows: int) -> ValidationFiles:
    """Two tasks' answers about `rows / SAMPLES` captions: a fifth of the rows have a fault; all in one seeded draw."""
    files = _files(root)
    pairs = rows // SAMPLES
    with PAIRS.writer(files.pairs) as append:
        for block in batched(range(pairs), _BLOCK):
            captions = [_text("caption", number) for number in block]
            images: list[object] = [b"x"] * len(block)
            ids = _ids(block)
            append({"id": ids, "image_id": ids, "image": images, "caption": [*captions], "facts": [None] * len(block)})
    for number, task in enumerate(TASKS):
        with GENERATIONS.writer(files.captions / TABLE / f"{task}.parquet") as append:
            for block in batched(range(pairs * SAMPLES), _BLOCK):
                append(_answers(block, number))
    sidecar = Sidecar(
        name="base", model="toy", architecture={}, quick_gelu=False, embed_dim=8, context_length=77,
        preparation=Preparation(size=64), method="base",
    )  # fmt: skip
    write_json(files.encoder / SIDECAR, sidecar.model_dump())
    return files


def _files(root: Path) -> ValidationFiles:
    inside = ("captions", "train.parquet", "evaluation", "base", ".", "quarantine", "docs")
    return ValidationFiles(*(root / name for name in inside))


def _answers(rows: tuple[int, ...], number: int) -> dict[str, list[object]]:
    sources = [_text("caption", row // SAMPLES) if number == 0 else _answer(0, row) for row in rows]
    columns: dict[str, list[object]] = {name: [None] * len(rows) for name in GENERATIONS.schema.names}
    return columns | {
        "id": _ids(row // SAMPLES for row in rows),
        "sample": [row % SAMPLES for row in rows],
        "source": [*sources],
        "key": [f"{row:064x}" for row in rows],
        "accepted": [True] * len(rows),
        "text": [_answer(number, row) for row in rows],
    }


def _ids(numbers: Any) -> list[object]:
    return [f"pair{number:09d}" for number in numbers]


def _answer(number: int, row: int) -> str:
    if row % 5 == 4 and number == row % 2:
        return f"Sure! Here is the caption of {row}."
    opening = ("This picture shows", "Somebody photographed")[number]
    return f"{opening} {_text(f'answer {number}', row)}."


def _text(kind: str, number: int) -> str:
    rng = random.Random(f"{kind} {number}")
    return f"{rng.choice(_SUBJECTS)} {rng.choice(_PLACES)}, {rng.choice(_MANNERS)}, {_name(number)}"


def _name(number: int) -> str:
    """A made-up word for every number, so that no two texts are the same."""
    word = ""
    while number or not word:
        number, rest = divmod(number, 20)
        word += "bdfghjklmnprstvwzkmt"[rest] + "aeiou"[rest % 5]
    return word


def measure(files: ValidationFiles) -> Point:
    """Run the stage here."""
    idle = _memory("VmHWM")
    start = time.perf_counter()
    validate.run(_settings(), TABLE, files, _fake_probes())
    seconds = time.perf_counter() - start
    summary = json.loads((files.quarantine / TABLE / SUMMARY).read_text("utf-8"))
    rows = int(summary["rows"])
    return Point(
        rows, int(summary["accepted"]), round(seconds, 1), round(rows / seconds), round(idle), round(_memory("VmHWM"))
    )


def _settings() -> Settings:
    settings = load_settings()
    limits = {"check_scene_facts": False, "min_accepted_share": 0.0, "max_echo_share": 1.0}
    return settings.model_copy(update={"validation": settings.validation.model_copy(update=limits)})


def _fake_probes() -> Probes:
    """No tokenizer, no sentence model, no benchmark."""
    return Probes(
        lambda texts: np.array([2 + text.count(" ") for text in texts], dtype=np.int64),
        lambda texts, _others: np.full(len(texts), 0.8),
        lambda _text: None,
        None,
    )


def _memory(name: str) -> float:
    """This program's own memory in MB, as the kernel counts it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(name))


def _measured(rows: list[int]) -> Iterator[Point]:
    """Each size in a process of its own."""
    for count in rows:
        with tempfile.TemporaryDirectory(prefix="validation-") as name:
            write_world(Path(name), count)
            command = [sys.executable, "-m", __spec__.name, "--root", name]
            done = subprocess.run(command, env=os.environ, stdout=subprocess.PIPE, text=True, check=True)
            yield Point(**json.loads(done.stdout.splitlines()[-1]))


def main(
    rows: Annotated[list[int] | None, typer.Option(help="Rows of the table; may be given several times.")] = None,
    root: Annotated[Path | None, typer.Option(help="Measure the world that is in this folder, and it alone.")] = None,
) -> None:
    """Print rows/s and peak memory for tables of 100,000 and 1,000,000 rows; the last line is one JSON object.

    Example: python -m benchmarks.validation --rows 100000 --rows 1000000
    """
    if root is not None:
        print(json.dumps(asdict(measure(_files(root)))))
        return
    points = []
    for point in _measured(rows or list(ROWS)):
        print(point)
        points.append(point)
    growth = points[-1].peak_mb - points[0].peak_mb
    print(json.dumps({"points": [asdict(point) for point in points], "peak_growth_mb": growth}))


if __name__ == "__main__":
    typer.run(main)
