"""This project's side of the training benchmark: stage `embed` once, then the loop on its output."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from benchmarks.training_data import Prepared
from components.core.compute.distributed import World
from components.core.compute.hardware import pick_autocast
from components.core.settings import load_settings
from components.core.tables.records import PAIRS
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder
from components.training.data import load_data
from components.training.engine.gradients import Objective, Towers, evaluate
from components.training.engine.loop import fit
from components.training.engine.meter import Step
from components.training.engine.run import LoopOptions, Run
from components.training.methods.contract.losses import Features
from components.training.methods.registry import find_method
from components.training.rows.batches import Batch


@dataclass(frozen=True)
class Ours:
    """The engine's report.

    Attributes:
        losses: before each step's update.
        seconds: whole steps, waiting for data included.
        processor: processor time used by the end of each step, over all threads, in seconds.
        shares: of a step's time, by kind of work.
        flop_utilisation: share of the hardware's peak; None where that is not known.
        mismatched_loss: the first step's with every image given the next row's caption.
    """

    losses: list[float]
    seconds: list[float]
    processor: list[float]
    shares: dict[str, float]
    flop_utilisation: float | None
    mismatched_loss: float


def hyper_parameters(batch: int, steps: int) -> Any:
    """Contrastive fine-tuning of the whole text tower and the logit scale, as `open_clip_train --lock-image` does it.

    One epoch is one batch.
    """
    given = {
        "scope": "tower", "temperature": None, "learn_logit_scale": True, "schedule": "constant", "weight_decay": 0.1,
        "lr": 1e-5, "betas": (0.9, 0.98), "eps": 1e-6, "batch_size": batch, "epochs": steps,
    }  # fmt: skip
    return find_method("caption_ft").settings(given)


def embed_images(data: Prepared) -> float:
    """Run stage `embed`; returns the seconds per image of its work for every image, decoding included."""
    settings = load_settings()
    own = settings.embed.model_copy(update={"state": data.files.embeddings.with_name("embed-state")})
    settings = settings.model_copy(update={"embed": own})
    embed.run(settings, data.files.embeddings, data.files.pairs, data.files.base)
    encoder = Encoder.load(data.files.base)
    images = PAIRS.read(data.files.pairs / "train.parquet", ["image"])["image"].to_pylist()
    encoder.image_features(images[:1])
    start = time.perf_counter()
    encoder.image_features(images)
    return (time.perf_counter() - start) / len(images)


def run_ours(data: Prepared, hyper: Any, device: str, precision: str, micro_batch: int | None) -> Ours:
    """Train for `hyper.epochs` steps on embedded images, then as many more to see where the time goes."""
    settings = load_settings()
    train = settings.train.model_copy(
        update={"checkpoint_dir": data.folder / "state", "validation_images": 0, "shards": None}
    )
    settings = settings.model_copy(update={"train": train})
    encoder, method = Encoder.load(data.files.base), find_method("caption_ft")
    source = load_data(settings, method, hyper, encoder, data.files, World(), device).source
    autocast = pick_autocast(precision, device)
    model = encoder.model.to(device)

    def losses(features: Features) -> dict[str, Tensor]:
        return method.losses(features, hyper)

    objective = Objective(Towers(model, device, autocast), model, nn.Module(), losses, micro_batch, World(), device)
    mismatched = _mismatched_loss(objective, next(iter(source.epoch(0))))
    steps: list[tuple[Step, float]] = []
    run = Run(
        title="cliptune",
        model=model,
        trained=method.freeze(model, hyper),
        losses=losses,
        source=source,
        optimisation=hyper,
        options=LoopOptions(device, autocast, micro_batch, log_every=1),
        report=lambda step: steps.append((step, time.process_time())),
    )
    fit(run)
    paces = [step.pace for step, _ in steps]
    utilisation = [pace.flop_utilisation for pace in paces[1:] if pace.flop_utilisation is not None]
    return Ours(
        losses=[step.losses["infonce"] for step, _ in steps],
        seconds=[hyper.batch_size / pace.samples_per_second for pace in paces],
        processor=[seconds for _, seconds in steps],
        shares=_shares(run, device),
        flop_utilisation=statistics.median(utilisation) if utilisation else None,
        mismatched_loss=mismatched,
    )


def _mismatched_loss(objective: Objective, batch: Batch) -> float:
    rolled = {name: torch.roll(rows, 1, dims=0) for name, rows in batch.features.items()}
    return sum(float(loss) for loss in evaluate(objective, replace(batch, features=rolled)).values())


def _shares(run: Run, device: str) -> dict[str, float]:
    """Where a step's time goes; the first step, which allocates, is left out."""
    spent: dict[str, float] = defaultdict(float)
    steps: list[dict[str, float]] = []

    def note(step: Step) -> None:
        total = run.optimisation.batch_size / step.pace.samples_per_second
        steps.append({**spent, "data wait": total * step.pace.data_wait_share, "total": total})
        spent.clear()

    with _timed(spent, device):
        fit(replace(run, report=note))
    sums = {name: sum(step[name] for step in steps[1:]) for name in steps[-1]}
    total = sums.pop("total")
    sums["loss, backward and clipping"] = total - sum(sums.values())
    return {name: seconds / total for name, seconds in sums.items()}


@contextmanager
def _timed(spent: dict[str, float], device: str) -> Iterator[None]:
    """Within the block, add the seconds of the towers' forward passes and of the optimiser's steps to `spent`."""
    begun: dict[str, float] = {}

    def now() -> float:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def begin(name: str) -> None:
        begun[name] = now()

    def end(name: str) -> None:
        spent[name] += now() - begun[name]

    forward, optimiser = "text forward", "optimiser"
    handles = [
        register_module_forward_pre_hook(lambda module, _: begin(forward) if isinstance(module, Towers) else None),
        register_module_forward_hook(lambda module, _, __: end(forward) if isinstance(module, Towers) else None),
        register_optimizer_step_pre_hook(lambda *_: begin(optimiser)),
        register_optimizer_step_post_hook(lambda *_: end(optimiser)),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
