"""Does every stage of `train-paraclip` keep its memory flat and its time linear, up to five million pairs?

Captions made of words, embeddings at random and replayed answers go through the stages' own commands, each in a process
group whose memory and disk are watched. Nothing here is about quality: the towers are tiny, so that a training step is
about data. A folder keeps everything; a second run with it resumes after the last stage that was done. The last lines
are one JSON object per stage.

    python -m benchmarks.scale --rows 5000000 --folder /tmp/scale
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.scale_inputs import (
    Size,
    read_size,
    write_embeddings,
    write_project,
    write_queries,
    write_replay,
)
from benchmarks.scale_process import run
from components.core.system.errors import InputError, run_command
from components.core.tables.files import write_json

REPO = Path(__file__).parents[1]


@dataclass(frozen=True)
class Stage:
    """One command.

    Attributes:
        arguments: of Python.
        rows: how many it is about.
        before: writes files that it reads and that no other stage wrote.
        until: ends it before its end.
    """

    name: str
    arguments: tuple[str, ...]
    rows: int
    before: Callable[[], object] = lambda: None
    until: Callable[[], bool] = lambda: False


def stages(folder: Path, size: Size) -> Iterator[Stage]:
    """The stages in their order."""
    embedded = size.rows + size.images
    yield Stage("prepare", ("-m", "components.data.prepare"), embedded)
    yield Stage("base", ("-m", "components.training.base.base"), 0)
    yield Stage("embed", ("-m", "components.encoders.embed"), embedded)
    for task in ("paraphrase_1", "paraphrase_2"):
        synthesize = ("-m", "components.captions.synthesize", "--task", task)
        yield Stage(f"synthesize {task}", synthesize, size.rows, before=lambda: write_replay(folder, size.rows))
    validate = ("-m", "components.captions.validation.validate", "--table", "paraphrases")
    yield Stage("validate", validate, size.rows, before=lambda: write_queries(folder, size))
    yield Stage("tokens", ("-c", "from benchmarks.scale import load_rows; load_rows()"), size.rows)
    checkpoints = folder / "state" / "train"
    yield Stage(
        "train",
        ("-m", "components.training.train", "--method", "paraclip"),
        size.rows,
        until=lambda: any(checkpoints.glob("paraclip-*/step-*")),
    )
    yield Stage("evaluate", ("-m", "components.evaluation.scoring.evaluate", "--encoder", "base"), size.queries)


def load_rows() -> None:
    """What `train` does before its first step; it keeps the token files, so that a run after this one finds them."""
    from components.core.compute.distributed import World
    from components.core.system.checking import load_checked
    from components.encoders.adapter.encoder import Encoder
    from components.training.data import TrainingFiles, load_data
    from components.training.methods.registry import find_entry

    settings = load_checked()
    entry = find_entry(settings.methods, "paraclip")
    files = TrainingFiles(validated=entry.reads)
    load_data(settings, entry.method, entry.hyper, Encoder.load(files.base), files, World(), "cpu")


def measure(folder: Path, size: Size, until: str | None = None) -> list[dict[str, Any]]:
    """What every stage took; a stage that is done already is not done again.

    Raises:
        InputError: the folder has inputs of another size.
    """
    _write_inputs(folder, size)
    scratch = folder / "scratch"
    for name in (scratch, folder / "measured", folder / "logs"):
        name.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(REPO), "TMPDIR": str(scratch), "GX_ANALYTICS_ENABLED": "false"}
    environment |= {"HF_HUB_OFFLINE": "1"}
    found = []
    for stage in stages(folder, size):
        done = folder / "measured" / f"{stage.name}.json"
        if not done.is_file():
            print(f"{stage.name} ...", file=sys.stderr)
            stage.before()
            log = folder / "logs" / f"{stage.name}.log"
            taken = run([sys.executable, *stage.arguments], folder, environment, log, stage.until)
            write_json(done, {"stage": stage.name, "rows": stage.rows, **asdict(taken)})
        found.append(json.loads(done.read_text("utf-8")))
        if stage.name == until:
            break
    return found


def _write_inputs(folder: Path, size: Size) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    there = read_size(folder)
    if there is not None and there != size:
        raise InputError(f"{folder} has inputs of another size ({vars(there)}): name another folder, or empty this one")
    if there is None:
        write_embeddings(folder / "inputs", size)
        write_project(folder, size)


def show(found: list[dict[str, Any]], console: Console) -> None:
    """The stages as a table."""
    view = Table("stage", title="what every stage took")
    columns = {"rows": "{:,}"} | dict.fromkeys(("seconds", "processor_seconds"), "{:,.1f}")
    columns |= dict.fromkeys(("peak_memory_gb", "peak_own_memory_gb", "disk_gb", "peak_disk_gb"), "{:.2f}")
    for name in columns:
        view.add_column(name, justify="right")
    for one in found:
        view.add_row(one["stage"], *(how.format(one[name]) for name, how in columns.items()))
    console.print(view)


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="scale-benchmark-") as name:
        yield Path(name)


def main(
    rows: Annotated[int, typer.Option(help="Pairs to train on.")] = 5_000_000,
    images: Annotated[int, typer.Option(help="Test images.")] = 128_000,
    queries: Annotated[int, typer.Option(help="Texts that are evaluated.")] = 25_000,
    batch: Annotated[int, typer.Option(help="Of training.")] = 3072,
    steps: Annotated[int, typer.Option(help="Of training, after which it is stopped.")] = 50,
    folder: Annotated[Path | None, typer.Option(help="Keep everything here; a second run resumes.")] = None,
    until: Annotated[str | None, typer.Option(help="Stop after this stage.")] = None,
) -> None:
    """Measure every stage of train-paraclip.

    Five million pairs take about 45 GB of disk, going by the figures of fewer.

    Example: python -m benchmarks.scale --rows 500000 --folder /tmp/scale
    """

    def command() -> None:
        # So that the running stage ends too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        with _place(folder) as place:
            found = measure(place, Size(rows, images, queries, batch, steps), until)
        show(found, Console(stderr=True))
        for one in found:
            print(json.dumps(one))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
