"""How much faster is `cliptune evaluate` than the command `clip_benchmark`, and does it find the same?

Text retrieval and zero-shot classification of one model with random weights on the same pictures and texts, each
engine's whole command. Then the same for a second encoder of the same image tower, whose image features are cached;
and COCO-PE's size by synthetic embeddings. The last line is one JSON object.

    python -m benchmarks.evaluation
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.evaluation_data import prepare
from benchmarks.evaluation_engines import Timed, largest_difference, run_ours, run_peer
from benchmarks.evaluation_gallery import measure_gallery
from components.core.system.errors import run_command


def measure(model: str, images: int) -> dict[str, Any]:
    """Run both engines and compare them.

    Args:
        model: an open_clip model.
        images: of each task; each has five captions, and the hundred classes have ten prompts each.
    """
    with tempfile.TemporaryDirectory(prefix="evaluation-benchmark-") as name:
        folder = Path(name)
        prepared = prepare(folder, model, images)
        peer = run_peer(prepared, model, folder)
        cold, warm = run_ours(prepared, model, folder)
    return {"model": model, "images": prepared.images, "texts": prepared.texts} | compare(peer, cold, warm)


def compare(peer: Timed, cold: Timed, warm: Timed) -> dict[str, Any]:
    """The figures of both engines."""
    return {
        "threads": torch.get_num_threads(),
        "speedup_vs_clip_benchmark": peer.seconds / cold.seconds,
        "speedup_with_image_features_cached": peer.seconds / warm.seconds,
        "seconds_clip_benchmark": peer.seconds,
        "seconds_cliptune": cold.seconds,
        "seconds_cliptune_image_features_cached": warm.seconds,
        "largest_difference": largest_difference(cold, peer),
    }


def show(found: dict[str, Any], console: Console) -> None:
    """The comparison as a table."""
    table = Table("", "seconds", "", title=f"{found['model']}: {found['images']} images, {found['texts']} texts")
    table.add_row("clip_benchmark", f"{found['seconds_clip_benchmark']:.1f}", "")
    for name, seconds, ratio in (
        ("cliptune", "seconds_cliptune", "speedup_vs_clip_benchmark"),
        ("image tower seen before", "seconds_cliptune_image_features_cached", "speedup_with_image_features_cached"),
    ):
        table.add_row(name, f"{found[seconds]:.1f}", f"{found[ratio]:.1f} times as fast")
    console.print(table)
    console.print(f"largest difference of a number: {found['largest_difference']:.1e}")


def main(
    model: Annotated[str, typer.Option(help="An open_clip model.")] = "ViT-B-32",
    images: Annotated[int, typer.Option(help="Images of each task.")] = 200,
    gallery: Annotated[int, typer.Option(help="Images of the large gallery; 0 leaves it out.")] = 128_000,
    queries: Annotated[int, typer.Option(help="Queries before it.")] = 25_000,
) -> None:
    """Compare with clip_benchmark, and measure the largest gallery.

    Example: python -m benchmarks.evaluation --images 100 --gallery 0
    """

    def command() -> None:
        found = measure(model, images)
        show(found, Console())
        found["gallery"] = measure_gallery(gallery, queries) if gallery else None
        print(json.dumps(found))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
