"""How much faster is this engine than open_clip_train at the same fine-tuning, and is it the same fine-tuning?

Both train the text tower of one model with random weights on the same images and captions, image tower locked, with
the same batch, optimiser and number of threads. A data set is one batch, so every step's loss can be compared whatever
the order. The last line is one JSON object.

    python -m tests.benchmarks.training --batch 64
"""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from components.core.compute.hardware import pick_device
from components.core.errors import InputError, run_command
from tests.benchmarks.training_data import Prepared, prepare
from tests.benchmarks.training_memory import curve, plot
from tests.benchmarks.training_ours import Ours, hyper_parameters, run_ours
from tests.benchmarks.training_peer import Peer, run_peer

EPOCHS = (1, 5, 10, 32)
"""Lengths of a training for which the speed-up is also told with the embedding counted in."""


def measure(
    model: str, batch: int, steps: int, micro_batch: int | None, device: str, precision: str, threads: int
) -> dict[str, Any]:
    """Run both sides and compare them.

    Args:
        steps: how many are timed; one more comes before them and is not.

    Raises:
        InputError: the model is unknown.
    """
    torch.set_num_threads(threads)
    hyper = hyper_parameters(batch, steps + 1)
    with tempfile.TemporaryDirectory(prefix="training-benchmark-") as folder:
        data = prepare(Path(folder), model, batch, seed=0)
        peer = run_peer(data, model, hyper, device, precision, threads)
        ours = run_ours(data, hyper, device, precision, micro_batch)
        facts = {
            "model": model,
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "threads": threads,
            "precision": precision,
            "batch": batch,
            "micro_batch": micro_batch,
            "steps": steps,
            **_texts(data),
        }
        return facts | compare(peer, ours, batch)


def _texts(data: Prepared) -> dict[str, float]:
    return {
        "tokens_mean": round(float(data.lengths.mean()), 2),
        "tokens_longest": int(data.lengths.max()),
        "tokens_context": data.context,
    }


def compare(peer: Peer, ours: Ours, batch: int) -> dict[str, Any]:
    """Rates are medians over all steps but the first, which allocates memory."""
    theirs, own = statistics.median(peer.seconds[1:]), statistics.median(ours.seconds[1:])
    without_wait = statistics.median(a - b for a, b in zip(peer.seconds[1:], peer.waits[1:], strict=True))
    embedding = ours.embed_seconds * batch
    differences = [abs(a - b) for a, b in zip(ours.losses, peer.losses, strict=True)]
    return {
        "speedup_vs_open_clip_train": theirs / own,
        "speedup_without_peers_data_wait": without_wait / own,
        "speedup_of_fastest_steps": min(peer.seconds[1:]) / min(ours.seconds[1:]),
        "speedup_in_processor_time": _processor_seconds(peer) / _processor_seconds(ours),
        "processors_used_peer": _processors_used(peer),
        "processors_used_ours": _processors_used(ours),
        "speedup_with_embedding_by_epochs": {
            str(epochs): epochs * theirs / (epochs * own + embedding) for epochs in EPOCHS
        },
        "break_even_epochs": embedding / (theirs - own) if theirs > own else None,
        "samples_per_second_ours": batch / own,
        "samples_per_second_peer": batch / theirs,
        "samples_per_second_embedding": 1 / ours.embed_seconds,
        "first_step_loss_ours": ours.losses[0],
        "first_step_loss_peer": peer.losses[0],
        "first_step_loss_difference": differences[0],
        "first_step_loss_mismatched": ours.mismatched_loss,
        "largest_loss_difference": max(differences),
        "last_step_loss_ours": ours.losses[-1],
        "last_step_loss_peer": peer.losses[-1],
        "time_shares": ours.shares,
        "flop_utilisation": ours.flop_utilisation,
    }


def _processor_seconds(side: Peer | Ours) -> float:
    return statistics.median(b - a for a, b in pairwise(side.processor))


def _processors_used(side: Peer | Ours) -> float:
    """How many processors a side had, on average over its timed steps."""
    return (side.processor[-1] - side.processor[0]) / sum(side.seconds[1:])


def show(found: dict[str, Any], console: Console) -> None:
    """The comparison and where the time goes, as tables."""
    texts = f"texts of {found['tokens_mean']:.1f} tokens, at most {found['tokens_longest']}"
    title = f"{found['model']}, batch {found['batch']}, {found['threads']} threads, {found['device']}; {texts}"
    sides = Table("", "open_clip_train", "cliptune", "", title=title)
    rates = [found[f"samples_per_second_{side}"] for side in ("peer", "ours")]
    speedup = f"{found['speedup_vs_open_clip_train']:.2f} times as fast"
    sides.add_row("samples/s", f"{rates[0]:.2f}", f"{rates[1]:.2f}", speedup)
    for step in ("first", "last"):
        losses = [found[f"{step}_step_loss_{side}"] for side in ("peer", "ours")]
        sides.add_row(f"{step} step's loss", *(f"{loss:.6f}" for loss in losses), f"{abs(losses[0] - losses[1]):.1e}")
    console.print(sides)
    fewest = min(found["processors_used_peer"], found["processors_used_ours"])
    if found["device"] == "cpu" and fewest < 0.9 * found["threads"]:
        console.print(
            f"other programs were busy ({fewest:.1f} of {found['threads']} processors left), so mistrust these rates; "
            f"in processor time it is {found['speedup_in_processor_time']:.2f} times as fast"
        )
    even = found["break_even_epochs"]
    console.print(
        f"images are embedded once, at {found['samples_per_second_embedding']:.1f}/s; that is "
        + (f"won back after {even:.2f} epochs" if even is not None else "never won back")
        + "; embedding counted in:"
    )
    for epochs, speed in found["speedup_with_embedding_by_epochs"].items():
        console.print(f"  {speed:.2f} times as fast in {epochs} epochs")
    shares = Table("a step's time", "share")
    for name, share in found["time_shares"].items():
        shares.add_row(name, f"{100 * share:.1f}%")
    console.print(shares)
    if found["flop_utilisation"] is not None:
        console.print(f"{100 * found['flop_utilisation']:.1f}% of the GPU's peak FLOP/s")
    for point in found.get("memory", ()):
        console.print(f"batch {point['batch']} in micro-batches of {point['micro_batch']}: {point['peak_gb']:.2f} GB")


def main(
    batch: Annotated[int, typer.Option(help="Rows of a contrastive batch, on both sides.")] = 64,
    steps: Annotated[int, typer.Option(help="Timed steps of each side.")] = 4,
    model: Annotated[str, typer.Option(help="An open_clip model with a CLIP text tower.")] = "ViT-B-32",
    micro_batch: Annotated[int | None, typer.Option(help="Texts that go through our tower at once.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16; fp32 on a processor, bf16 on a GPU.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each side.")] = torch.get_num_threads(),
    memory: Annotated[bool, typer.Option("--memory", help="Also measure the peak memory of large batches.")] = False,
    picture: Annotated[Path | None, typer.Option("--plot", help="Where to write the memory curve (PNG).")] = None,
) -> None:
    """Compare this engine with open_clip_train on one machine.

    python -m tests.benchmarks.training

    python -m tests.benchmarks.training --batch 128 --memory --plot reports/training_memory.png

    python -m tests.benchmarks.training --model ViT-S-32-alt --batch 8 --steps 2
    """

    def command() -> None:
        if steps < 1:
            raise InputError("--steps must be at least 1: the first step of each side is not timed")
        where = pick_device(device)
        chosen = precision or ("bf16" if where == "cuda" else "fp32")
        points = curve(model, threads) if memory else []
        found = measure(model, batch, steps, micro_batch, where, chosen, threads)
        if memory:
            found["memory"] = [asdict(point) for point in points]
            if picture is not None:
                plot(points, picture)
        show(found, Console())
        print(json.dumps(found))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
