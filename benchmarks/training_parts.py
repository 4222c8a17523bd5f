"""How much faster is a step when only a part of the text tower trains?"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.training_data import captions
from benchmarks.training_ours import hyper_parameters
from components.core.compute.hardware import pick_autocast
from components.core.system.progress import track
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.encoders.adapter.model_configs import model_config
from components.training.engine.meter import Meter
from components.training.engine.run import LoopOptions, Run
from components.training.engine.stepper import Stepper, make_optimiser
from components.training.methods.contract.low_rank import add_low_rank
from components.training.methods.registry import find_method
from components.training.rows.batches import Batch, CachedFeatures, Sampler, TableSource, Texts

PARTS: dict[str, dict[str, int]] = {"lora": {"lora_rank": 8}, "last 2 blocks": {"last_blocks": 2}}


def measure_parts(
    model: str, batch: int, steps: int, micro_batch: int | None, device: str, precision: str
) -> dict[str, dict[str, float]]:
    """Steps per second by part, and the median of how many times as fast as a step of all parameters it is.

    On a CPU these are seconds of processor time, on which other programs have little influence.
    Each part's steps alternate with those of the full training, on one batch, so that frozen states are already kept:
    as in every epoch but the first.
    """
    full, rows = _stepper({}, model, batch, micro_batch, device, precision)
    seconds: dict[str, list[float]] = {"full": []}
    found = {}
    for name, settings in PARTS.items():
        part, _ = _stepper(settings, model, batch, micro_batch, device, precision)
        sides: list[tuple[float, float]] = []
        for _ in track(range(steps + 1), f"full and {name}", steps + 1, "step"):
            sides.append((_seconds(full, rows, device), _seconds(part, rows, device)))
        seconds["full"] += [one for one, _ in sides[1:]]
        speed = 1 / statistics.median(other for _, other in sides[1:])
        found[name] = {"steps_per_second": speed, "speedup": statistics.median(a / b for a, b in sides[1:])}
    return {"full": {"steps_per_second": 1 / statistics.median(seconds["full"]), "speedup": 1.0}, **found}


def _seconds(stepper: Stepper, batch: Batch, device: str) -> float:
    on_gpu = device.startswith("cuda")
    clock = time.perf_counter if on_gpu else time.process_time
    start = clock()
    stepper.step([batch], Meter(device))
    if on_gpu:
        torch.cuda.synchronize()
    return clock() - start


def _stepper(
    settings: dict[str, int], model: str, batch: int, micro_batch: int | None, device: str, precision: str
) -> tuple[Stepper, Batch]:
    """A text tower with random weights, alt-texts and random image features."""
    torch.manual_seed(0)
    encoder: Any = Encoder.create("base", model, model_config(model), "random")
    method, hyper = find_method("caption_ft"), replace(hyper_parameters(batch, 1), **settings)
    tokens, rows = encoder.tokenizer(captions(batch, 0)), np.arange(batch)
    features = np.random.default_rng(0).normal(size=(batch, encoder.sidecar.embed_dim)).astype(np.float32)
    encoder.model.visual, encoder.model.encode_image = nn.Identity(), None
    source = TableSource(
        sampler=Sampler(rows, batch, 0),
        columns=method.columns(hyper),
        names=[str(row) for row in rows],
        texts={"caption": Texts(tokens, encoder.tokenizer.lengths(tokens))},
        images={"image": rows},
        shown=CachedFeatures(unit_rows(features)[0]),
    )
    tower = encoder.model.to(device).eval()
    trained = method.freeze(tower, hyper)
    if hyper.lora_rank:
        trained = add_low_rank(tower, trained, hyper.lora_rank, hyper.lora_alpha)
    run = Run(
        title=", ".join(f"{name} {value}" for name, value in settings.items()) or "full",
        model=tower,
        trained=trained,
        losses=lambda found: method.losses(found, hyper),
        source=source,
        optimisation=hyper,
        options=LoopOptions(device, pick_autocast(precision, device), micro_batch),
    )
    return Stepper(run, make_optimiser(trained, hyper), 1), next(iter(source.epoch(0)))
