"""How much faster is this engine than open_clip_train at the same fine-tuning, and is it the same fine-tuning?

Both train the text tower of one model with random weights on the same images and captions, image tower locked, with
the same batch, optimiser and number of threads. A data set is one batch, so every step's loss can be compared whatever
the order. Where bfloat16 is in hardware, both also train in it.

    python -m research.measure.training
    python -m research.measure.training --model ViT-S-32-alt --batch 8 --steps 2 --rounds 1
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from components.core.compute.devices import bf16_is_native, pick_device
from components.core.system.errors import InputError
from research.measure.record import Found, Options, run
from research.measure.training_data import prepare
from research.measure.training_sides import TrainedSide, embed_images, plan, run_ours, run_peer

OPTIONS: Options = {
    "model": ("ViT-B-32", "an open_clip model with a CLIP text tower"),
    "batch": (64, "rows of a contrastive batch, on both sides"),
    "steps": (4, "timed steps of each side; one more comes before them"),
    "rounds": (3, "how often both sides run in each precision, in turn, so that what else the machine does slows both"),
    "device": ("auto", "auto, cpu or cuda"),
}
EPOCHS = (1, 5, 10, 32)
"""Lengths of a training whose speed-up is also printed with the embedding counted in."""
Rounds = list[tuple[TrainedSide, TrainedSide]]
"""The peer and this engine, round by round."""


def measure(model: str, batch: int, steps: int, rounds: int, device: str) -> Found:
    """Run both sides in each precision and compare them.

    Raises:
        InputError: the model or the device is unknown, or there is nothing to time.
    """
    if steps < 1 or rounds < 1:
        raise InputError("--steps and --rounds must be at least 1: the first step of each run is not timed")
    device, method = pick_device(device), plan(batch, steps + 1)
    runs: dict[str, Rounds] = {name: [] for name in ("fp32", "bf16") if name == "fp32" or bf16_is_native(device)}
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        data = prepare(Path(folder), model, batch)
        embedding = embed_images(data)
        for _ in range(rounds):
            for precision, sides in runs.items():
                peer = run_peer(data, model, method.settings, device, precision)
                sides.append((peer, run_ours(data, method, device, precision)))
    both = list(zip(runs["fp32"], runs.get("bf16", ()), strict=False))
    found = {"model": model, "device": device, "batch": batch, "steps": steps, "rounds": rounds}
    return found | {
        "tokens_mean": round(data.tokens, 2),
        "samples_per_second_embedding": 1 / embedding,
        "precisions": {precision: compare(sides, batch, embedding) for precision, sides in runs.items()},
        "speedup_bf16_vs_fp32": _ratio([(one, other) for (_, one), (_, other) in both], _seconds) if both else None,
    }


def compare(rounds: Rounds, batch: int, embedding: float) -> Found:
    """Both sides in one precision.

    Rates are medians over all steps but each run's first, which allocates memory; speed-ups are medians over rounds.

    Args:
        embedding: seconds that embedding an image takes, once.
    """
    theirs, own = (statistics.median(one for sides in rounds for one in sides[side].seconds[1:]) for side in (0, 1))
    once, (peer, ours) = embedding * batch, rounds[0]
    return {
        "speedup": _ratio(rounds, _seconds),
        "speedup_in_processor_time": _ratio(rounds, _processor_seconds),
        "speedup_with_embedding_by_epochs": {str(epochs): epochs * theirs / (epochs * own + once) for epochs in EPOCHS},
        "break_even_epochs": once / (theirs - own) if theirs > own else None,
        "samples_per_second_ours": batch / own,
        "samples_per_second_peer": batch / theirs,
        "losses_ours": ours.losses,
        "losses_peer": peer.losses,
        "largest_loss_difference": max(abs(a - b) for a, b in zip(ours.losses, peer.losses, strict=True)),
    }


def rows(found: Found) -> Iterator[Sequence[object]]:
    """The table: a row for each precision."""
    yield ("", "open_clip_train/s", "cliptune/s", "times as fast", "in processor time", "largest loss difference")
    for precision, one in found["precisions"].items():
        rates = one["samples_per_second_peer"], one["samples_per_second_ours"]
        yield precision, *rates, one["speedup"], one["speedup_in_processor_time"], one["largest_loss_difference"]


def _ratio(pairs: Rounds, seconds: Callable[[TrainedSide], float]) -> float:
    """The median of how many times as long the first of a pair takes as the second."""
    return statistics.median(seconds(one) / seconds(other) for one, other in pairs)


def _seconds(side: TrainedSide) -> float:
    return statistics.median(side.seconds[1:])


def _processor_seconds(side: TrainedSide) -> float:
    return statistics.median(b - a for a, b in pairwise(side.processor))


if __name__ == "__main__":
    run("training", __doc__, OPTIONS, measure, rows)
