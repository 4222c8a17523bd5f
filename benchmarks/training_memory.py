"""The most memory that one training step needs, by micro-batch and by batch, each measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from benchmarks.training_data import captions
from benchmarks.training_ours import hyper_parameters
from components.core.compute.hardware import peak_memory
from components.core.system.progress import track
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.encoders.adapter.model_configs import model_config
from components.training.engine.loop import fit
from components.training.engine.run import LoopOptions, Run
from components.training.methods.registry import find_method
from components.training.rows.batches import CachedFeatures, Sampler, TableSource, Texts

BATCH, MICRO_BATCH = 3072, 128
MICRO_BATCHES = (64, 128, 256, 512)
BATCHES = (768, 1536, 3072)


@dataclass(frozen=True)
class Point:
    """One measurement: the process's peak memory in GB (10^9 bytes), weights and libraries included."""

    batch: int
    micro_batch: int
    peak_gb: float


def curve(model: str, threads: int) -> list[Point]:
    """The largest batch with every micro-batch, then every batch with one micro-batch."""
    wanted = [(BATCH, micro) for micro in MICRO_BATCHES]
    wanted += [(batch, MICRO_BATCH) for batch in BATCHES if batch != BATCH]
    return list(_measured(wanted, model, threads))


def _measured(wanted: list[tuple[int, int]], model: str, threads: int) -> Iterator[Point]:
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    for batch, micro_batch in track(wanted, "memory", len(wanted), "step"):
        options = {"batch": batch, "micro-batch": micro_batch, "model": model}
        command = [sys.executable, "-m", __spec__.name, *(f"--{key}={value}" for key, value in options.items())]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        yield Point(**json.loads(done.stdout.splitlines()[-1]))


def one_step(model: str, batch: int, micro_batch: int, full_length: bool = False) -> Point:
    """Train for one step on alt-texts and random image features, and say what this process needed at most.

    Args:
        full_length: fill every text up to the tower's context.
    """
    encoder = Encoder.create("base", model, model_config(model), "random")
    method, hyper = find_method("caption_ft"), hyper_parameters(batch, 1)
    texts = captions(batch, 0)
    if full_length:
        texts = [" ".join([text] * encoder.tokenizer.context_length) for text in texts]
    tokens, rows = encoder.tokenizer(texts), np.arange(batch)
    features = np.random.default_rng(0).normal(size=(batch, encoder.sidecar.embed_dim)).astype(np.float32)
    source = TableSource(
        sampler=Sampler(rows, batch, 0),
        columns=method.columns(hyper),
        names=[str(row) for row in rows],
        texts={"caption": Texts(tokens, encoder.tokenizer.lengths(tokens))},
        images={"image": rows},
        shown=CachedFeatures(unit_rows(features)[0]),
    )
    run = Run(
        title=f"batch {batch} by {micro_batch}",
        model=encoder.model,
        trained=method.freeze(encoder.model, hyper),
        losses=lambda found: method.losses(found, hyper),
        source=source,
        optimisation=hyper,
        options=LoopOptions(micro_batch=micro_batch),
    )
    fit(run)
    return Point(batch, micro_batch, round(_peak_bytes() / 1e9, 3))


def _peak_bytes() -> float:
    """This program's own peak; getrusage also counts the process that started it."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return peak_memory("cpu") * 1e6
    return next(float(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def main(
    batch: Annotated[int, typer.Option(help="Texts of the contrastive batch.")] = BATCH,
    micro_batch: Annotated[int, typer.Option(help="Texts that go through the tower at once.")] = MICRO_BATCH,
    model: Annotated[str, typer.Option(help="An open_clip model.")] = "ViT-B-32",
    full_length: Annotated[bool, typer.Option(help="Fill every text up to the tower's context.")] = False,
) -> None:
    """Train for one step and print the process's peak memory as one JSON object.

    Example: python -m benchmarks.training_memory --micro-batch 256
    """
    torch.manual_seed(0)
    print(json.dumps(asdict(one_step(model, batch, micro_batch, full_length))))


if __name__ == "__main__":
    typer.run(main)
