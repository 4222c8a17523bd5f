"""How fast do photographs come in? Stage `prepare` with one process and with two, and stage `embed` beside its tower.

The pictures are Flickr8k's where `../shared` has them, enlarged to the 500 x 375 that they are published in, otherwise
noise of that size. Beyond the first thousand they come again with a comment, so that their bytes are others.
`prepare` is timed as a whole command with nothing kept from before; `embed` without loading the model, beside the same
tower on the same pixels once they are decoded. The last line is one JSON object.

    python -m benchmarks.ingest
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import torch
import typer
import yaml
from PIL import Image
from torch import Tensor

from components.core.settings import load_settings
from components.core.system.errors import run_command
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder, Vectors
from components.encoders.adapter.model_configs import model_config

REPO = Path(__file__).parents[1]
FLICKR = REPO.parent / "shared" / "data" / "flickr8k" / "images"
SIZE = (500, 375)
_HELD_OUT = 10
_DRAWN = 1000
"""Pictures that differ in their pixels."""


def write_pictures(folder: Path, count: int) -> None:
    """`count` JPEGs with a `captions.tsv`."""
    folder.mkdir(parents=True)
    lines, drawn = ["image\tcaption"], [_encoded(picture) for picture in islice(_pictures(), min(count, _DRAWN))]
    for number in range(count):
        raw = drawn[number % _DRAWN]
        # A JPEG's comment may stand behind its first two bytes; its length counts itself.
        comment = b"" if number < _DRAWN else b"\xff\xfe\x00\x08%06d" % number
        (folder / f"{number:06d}.jpg").write_bytes(raw[:2] + comment + raw[2:])
        lines.append(f"{number:06d}.jpg\tphotograph number {number}")
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n")


def _encoded(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.resize(SIZE).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _pictures() -> Iterator[Image.Image]:
    files = sorted(FLICKR.glob("*.jpg")) if FLICKR.is_dir() else []
    for path in files:
        with Image.open(path) as image:
            yield image.convert("RGB")
    rng = np.random.default_rng(0)
    while True:
        yield Image.fromarray(rng.integers(0, 255, (96, 128, 3), dtype=np.uint8))


def write_project(folder: Path, pictures: Path, count: int) -> None:
    """A project whose stages read these pictures."""
    folder.mkdir()
    raw = yaml.safe_load((REPO / "params.yaml").read_text("utf-8"))
    counts = {"train": count - 2 * _HELD_OUT, "val": _HELD_OUT, "test": _HELD_OUT}
    raw["prepare"] = {"source": "folder", "folder": str(pictures), "counts": counts}
    raw["embed"] = {"batch_size": 64}
    (folder / "params.yaml").write_text(yaml.safe_dump(raw))


def time_prepare(folder: Path, processes: int) -> float:
    """Seconds that the stage takes with nothing kept from before."""
    raw = yaml.safe_load((folder / "params.yaml").read_text())
    raw["prepare"] |= {"processes": processes, "state": f"state/by-{processes}-{time.time_ns()}"}
    (folder / "params.yaml").write_text(yaml.safe_dump(raw))
    environment = os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
    return _seconds(
        lambda: subprocess.run(
            [sys.executable, "-m", "components.data.prepare"], cwd=folder, env=environment, check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
    )  # fmt: skip


def time_embed(folder: Path, model: str) -> tuple[float, float]:
    """Images per second of the stage, the better of two, and its share of the tower's rate then.

    Inside the stage each batch's pixels go through the tower once more: machines change their pace by the minute, and
    a tower timed before or after the stage would run at another pace.
    """
    torch.manual_seed(0)
    Encoder.create("base", model, model_config(model), "benchmark").save(folder / "base")
    settings = load_settings(folder / "params.yaml")
    images = len(list((folder.parent / "pictures").glob("*.jpg")))
    once = Encoder.pixel_features

    def stage(turn: int) -> tuple[float, float]:
        bare = []

        def twice(encoder: Encoder, pixels: Tensor) -> Vectors:
            found = once(encoder, pixels)
            bare.append(_seconds(lambda: once(encoder, pixels)))
            return found

        state = settings.embed.model_copy(update={"state": folder / f"state/embed-{turn}"})
        own = settings.model_copy(update={"embed": state})
        with patch.object(Encoder, "pixel_features", twice):
            whole = _seconds(
                lambda: embed.run(own, folder / f"embeddings-{turn}", folder / "data/pairs", folder / "base")
            )
        whole -= _seconds(lambda: Encoder.load(folder / "base"))
        return whole - sum(bare), sum(bare)

    seconds, bare = min(stage(turn) for turn in range(2))
    return images / seconds, bare / seconds


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(folder: Path, pictures: int, embedded: int, model: str, rounds: int) -> dict[str, Any]:
    """All figures.

    Args:
        pictures: that `prepare` reads.
        embedded: that `embed` reads.
        rounds: of `prepare`, of which the fastest counts.
    """
    found: dict[str, Any] = {"pictures": pictures, "embedded": embedded, "model": model}
    for part, count in (("prepare", pictures), ("embed", embedded)):
        (folder / part).mkdir(parents=True)
        write_pictures(folder / part / "pictures", count)
        write_project(folder / part / "project", folder / part / "pictures", count)
    project = folder / "prepare" / "project"
    seconds = {processes: min(time_prepare(project, processes) for _ in range(rounds)) for processes in (1, 2)}
    time_prepare(folder / "embed" / "project", 1)
    rate, share = time_embed(folder / "embed" / "project", model)
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return found | {
        "prepare_images_per_second": pictures / seconds[2],
        "prepare_speedup_two_processes": seconds[1] / seconds[2],
        "embed_images_per_second": rate,
        "embed_share_of_tower": share,
        "peak_memory_gb": max(peaks) * 1024 / 1e9,
    }


def main(
    pictures: Annotated[int, typer.Option(help="Pictures that prepare reads.")] = 32_000,
    embedded: Annotated[int, typer.Option(help="Pictures that embed reads.")] = 1024,
    model: Annotated[str, typer.Option(help="An open_clip model, with random weights.")] = "ViT-B-32",
    rounds: Annotated[int, typer.Option(help="Of prepare; the fastest counts.")] = 3,
) -> None:
    """Measure prepare and embed on photographs.

    Example: python -m benchmarks.ingest
    """

    def command() -> None:
        with tempfile.TemporaryDirectory(prefix="ingest-benchmark-") as name:
            print(json.dumps(measure(Path(name), pictures, embedded, model, rounds)))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
