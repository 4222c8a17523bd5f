"""How much faster is this engine than open_clip_train at the same fine-tuning, and is it the same fine-tuning?

Both train the text tower of one model with random weights on the same images and captions, image tower locked, with
the same batch, optimiser and number of threads. A data set is one batch, so every step's loss can be compared whatever
the order. Where bfloat16 is in hardware, both also train in it. The last line is one JSON object.

    python -m benchmarks.training --batch 64
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.training_data import Prepared, prepare
from benchmarks.training_memory import curve
from benchmarks.training_ours import Ours, embed_images, hyper_parameters, run_ours
from benchmarks.training_parts import measure_parts
from benchmarks.training_peer import Peer, run_peer
from components.core.compute.hardware import bf16_is_native, pick_device
from components.core.system.errors import InputError, run_command

EPOCHS = (1, 5, 10, 32)
"""Lengths of a training whose speed-up is also printed with the embedding counted in."""


Rounds = list[tuple[Peer, Ours]]
"""What both sides did in one precision, one after the other, so that what else the machine does slows both."""


def measure(
    model: str,
    batch: int,
    steps: int,
    micro_batch: int | None,
    device: str,
    precisions: Sequence[str],
    threads: int,
    rounds: int = 1,
) -> dict[str, Any]:
    """Run both sides and compare them.

    Args:
        steps: how many are timed of each run; one more comes before them and is not.
        precisions: the first is the one of all printed figures; `fp32` and `bf16` are compared where both are.
        rounds: how often both sides run in each precision, in turn.

    Raises:
        InputError: the model is unknown.
    """
    torch.set_num_threads(threads)
    hyper = hyper_parameters(batch, steps + 1)
    with tempfile.TemporaryDirectory(prefix="training-benchmark-") as folder:
        data = prepare(Path(folder), model, batch, seed=0)
        embedding = embed_images(data)
        runs: dict[str, Rounds] = {precision: [] for precision in precisions}
        for _ in range(rounds):
            for precision, sides in runs.items():
                peer = run_peer(data, model, hyper, device, precision, threads)
                sides.append((peer, run_ours(data, hyper, device, precision, micro_batch)))
        facts = {
            "model": model,
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "threads": threads,
            "precision": precisions[0],
            "batch": batch,
            "micro_batch": micro_batch,
            "steps": steps,
            "rounds": rounds,
            **_texts(data),
        }
        return facts | compare(runs[precisions[0]], batch, embedding) | compare_precisions(runs, batch, embedding)


def _texts(data: Prepared) -> dict[str, float]:
    return {
        "tokens_mean": round(float(data.lengths.mean()), 2),
        "tokens_longest": int(data.lengths.max()),
        "tokens_context": data.context,
    }


def compare(rounds: Rounds, batch: int, embedding: float) -> dict[str, Any]:
    """Both sides in one precision.

    Rates are medians over all steps but each run's first, which allocates memory; speed-ups are medians over rounds.

    Args:
        embedding: seconds that embedding an image takes, once.
    """
    theirs, own = (statistics.median(_timed_steps(rounds, side)) for side in (0, 1))
    once = embedding * batch
    (peer, ours), *_ = rounds
    differences = [abs(a - b) for a, b in zip(ours.losses, peer.losses, strict=True)]
    utilisation = [one.flop_utilisation for _, one in rounds if one.flop_utilisation is not None]
    return {
        "speedup_vs_open_clip_train": _ratio(rounds, _seconds),
        "speedup_without_peers_data_wait": _ratio(rounds, _without_wait),
        "speedup_of_fastest_steps": min(_timed_steps(rounds, 0)) / min(_timed_steps(rounds, 1)),
        "speedup_in_processor_time": _ratio(rounds, _processor_seconds),
        "processors_used_peer": statistics.median(_processors_used(one) for one, _ in rounds),
        "processors_used_ours": statistics.median(_processors_used(one) for _, one in rounds),
        "speedup_with_embedding_by_epochs": {str(epochs): epochs * theirs / (epochs * own + once) for epochs in EPOCHS},
        "break_even_epochs": once / (theirs - own) if theirs > own else None,
        "samples_per_second_ours": batch / own,
        "samples_per_second_peer": batch / theirs,
        "samples_per_second_embedding": 1 / embedding,
        "first_step_loss_ours": ours.losses[0],
        "first_step_loss_peer": peer.losses[0],
        "first_step_loss_difference": differences[0],
        "first_step_loss_mismatched": ours.mismatched_loss,
        "largest_loss_difference": max(differences),
        "last_step_loss_ours": ours.losses[-1],
        "last_step_loss_peer": peer.losses[-1],
        "time_shares": ours.shares,
        "flop_utilisation": statistics.median(utilisation) if utilisation else None,
    }


def compare_precisions(runs: dict[str, Rounds], batch: int, embedding: float) -> dict[str, Any]:
    """What bfloat16 changes, on this side and before the peer; None where one of the two was not measured."""
    alone = compare(runs["bf16"], batch, embedding) if "bf16" in runs else None
    both = [(plain, mixed) for (_, plain), (_, mixed) in zip(runs.get("fp32", ()), runs.get("bf16", ()), strict=False)]
    return {
        "speedup_bf16_vs_fp32": _ratio(both, _seconds) if both else None,
        "speedup_bf16_vs_fp32_in_processor_time": _ratio(both, _processor_seconds) if both else None,
        "speedup_vs_open_clip_train_bf16": alone["speedup_vs_open_clip_train"] if alone else None,
        "bf16": alone,
    }


def _timed_steps(rounds: Rounds, side: int) -> list[float]:
    return [seconds for sides in rounds for seconds in sides[side].seconds[1:]]


def _ratio(pairs: Sequence[tuple[Peer | Ours, Ours]], seconds: Callable[[Any], float]) -> float:
    """The median of how many times as long the first of a pair takes as the second."""
    return statistics.median(seconds(one) / seconds(other) for one, other in pairs)


def _seconds(side: Peer | Ours) -> float:
    return statistics.median(side.seconds[1:])


def _without_wait(side: Peer | Ours) -> float:
    waits = side.waits[1:] if isinstance(side, Peer) else [0.0] * len(side.seconds[1:])
    return statistics.median(a - b for a, b in zip(side.seconds[1:], waits, strict=True))


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
    if found["speedup_bf16_vs_fp32"] is not None:
        console.print(
            f"in bfloat16 {found['speedup_bf16_vs_fp32']:.2f} times as fast as in float32, and "
            f"{found['speedup_vs_open_clip_train_bf16']:.2f} times as fast as open_clip_train in bfloat16"
        )
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
    if "parts" in found:
        table = Table("trained part of the text tower", "steps/s", "times as fast")
        for name, part in found["parts"].items():
            table.add_row(name, f"{part['steps_per_second']:.2f}", f"{part['speedup']:.2f}")
        console.print(table)
    for point in found.get("memory", ()):
        console.print(f"batch {point['batch']} in micro-batches of {point['micro_batch']}: {point['peak_gb']:.2f} GB")


def _precisions(wanted: str | None, device: str) -> tuple[str, ...]:
    if wanted is not None or not bf16_is_native(device):
        return (wanted or "fp32",)
    return ("bf16", "fp32") if device == "cuda" else ("fp32", "bf16")


def main(
    batch: Annotated[int, typer.Option(help="Rows of a contrastive batch, on both sides.")] = 64,
    steps: Annotated[int, typer.Option(help="Timed steps of each side.")] = 4,
    model: Annotated[str, typer.Option(help="An open_clip model with a CLIP text tower.")] = "ViT-B-32",
    micro_batch: Annotated[int | None, typer.Option(help="Texts that go through our tower at once.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[
        Literal["fp32", "bf16"] | None,
        typer.Option(help="The only one to measure; both where bfloat16 is in hardware, first a GPU's bf16."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="How often both sides run in each precision, in turn.")] = 3,
    threads: Annotated[int, typer.Option(help="Threads of each side.")] = torch.get_num_threads(),
    memory: Annotated[bool, typer.Option("--memory", help="Also measure the peak memory of large batches.")] = False,
    parts: Annotated[bool, typer.Option("--parts", help="Also measure LoRA and training the last two blocks.")] = False,
) -> None:
    """Compare this engine with open_clip_train on one machine.

    python -m benchmarks.training

    python -m benchmarks.training --parts

    python -m benchmarks.training --batch 128 --memory

    python -m benchmarks.training --model ViT-S-32-alt --batch 8 --steps 2 --rounds 1
    """

    def command() -> None:
        if steps < 1 or rounds < 1:
            raise InputError("--steps and --rounds must be at least 1: the first step of each run is not timed")
        where = pick_device(device)
        points = curve(model, threads) if memory else []
        found = measure(model, batch, steps, micro_batch, where, _precisions(precision, where), threads, rounds)
        if parts:
            found["parts"] = measure_parts(model, batch, steps, micro_batch, where, found["precision"])
        if memory:
            found["memory"] = [asdict(point) for point in points]
        show(found, Console())
        print(json.dumps(found))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
