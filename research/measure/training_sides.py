"""The two sides of the training measurement: `python -m open_clip_train.main --lock-image`, and this project's loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from components.core.compute.devices import pick_autocast
from components.core.compute.distributed import World
from components.core.settings import load_settings
from components.core.tables.records import PAIRS
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.sidecar import WEIGHTS
from components.training.data import load_data
from components.training.engine.meter import Step
from components.training.engine.run import LoopOptions
from components.training.fine_tuning import FineTuning
from components.training.methods.caption_ft import CaptionFt
from components.training.methods.contract.method import Optimisation
from research.measure.training_data import Prepared


@dataclass(frozen=True)
class TrainedSide:
    """Each step's loss before its update, its seconds with the wait for data, and the processor's seconds so far."""

    losses: list[float]
    seconds: list[float]
    processor: list[float]


def plan(batch: int, steps: int) -> CaptionFt:
    """Contrastive fine-tuning of the whole text tower and the logit scale; one epoch is one batch."""
    return CaptionFt.read({
        "scope": "tower", "temperature": None, "learn_logit_scale": True, "schedule": "constant", "weight_decay": 0.1,
        "lr": 1e-5, "betas": (0.9, 0.98), "eps": 1e-6, "batch_size": batch, "epochs": steps,
    })  # fmt: skip


def embed_images(data: Prepared) -> float:
    """Run stage `embed`; returns the seconds per image of its work for every image, decoding included."""
    settings = load_settings()
    own = settings.embed.model_copy(update={"state": data.folder / "embed-state"})
    embed.run(settings.model_copy(update={"embed": own}), data.files.embeddings, data.files.pairs, data.files.base)
    encoder = Encoder.load(data.files.base)
    images = PAIRS.read(data.files.pairs / "train.parquet", ["image"])["image"].to_pylist()
    encoder.image_features(images[:1])
    start = time.perf_counter()
    encoder.image_features(images)
    return (time.perf_counter() - start) / len(images)


def run_ours(data: Prepared, method: CaptionFt, device: str, precision: str) -> TrainedSide:
    """Train for as many steps as epochs on embedded images."""
    settings = load_settings()
    own = {"checkpoint_dir": data.folder / "state", "validation_images": 0, "shards": None}
    settings = settings.model_copy(update={"train": settings.train.model_copy(update=own)})
    tuning, found = FineTuning.of(Encoder.load(data.files.base), method), TrainedSide([], [], [])
    source, _ = load_data(settings.train, method, tuning.encoder, data.files, World())

    def report(step: Step) -> None:
        found.losses.append(step.losses["infonce"])
        found.seconds.append(method.settings.batch_size / step.pace.samples_per_second)
        found.processor.append(time.process_time())

    options = LoopOptions(device, pick_autocast(precision, device), log_every=1)
    tuning.fit(source, "cliptune", options, report=report)
    return found


def run_peer(data: Prepared, model: str, hyper: Optimisation, device: str, precision: str) -> TrainedSide:
    """Fine-tune the text tower for `hyper.epochs` steps; one epoch is one batch, so its order does not matter.

    Raises:
        RuntimeError: it failed; the end of its output is the message.
    """
    # A folder of its own: open_clip_train ends at once, as if all were well, where it finds an earlier run's log.
    folder = Path(tempfile.mkdtemp(prefix="peer-", dir=data.folder))
    record, threads = folder / "peer.jsonl", str(torch.get_num_threads())
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent / "recorder"),
        "TRAINING_RECORD": str(record),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "open_clip_train.main", *_options(data, model, hyper, device, precision)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    steps = [json.loads(line) for line in record.read_text("utf-8").splitlines()] if record.exists() else []
    if done.returncode or len(steps) != hyper.epochs:
        raise RuntimeError(f"open_clip_train failed:\n{(done.stdout + done.stderr)[-3000:]}")
    names = ("train/loss", "train/batch_time", "processor_seconds")
    return TrainedSide(*([step[name] for step in steps] for name in names))


def _options(data: Prepared, model: str, hyper: Optimisation, device: str, precision: str) -> list[str]:
    # The whole image, as this project's embedding reads it; workers would start again for every epoch, which is a step.
    options: dict[str, object] = {
        "train-data": data.csv, "dataset-type": "csv", "model": model, "pretrained": data.files.base / WEIGHTS,
        "aug-cfg": "scale=(1.0,1.0)", "workers": 0, "batch-size": hyper.batch_size, "epochs": hyper.epochs,
        "lr": hyper.lr, "wd": hyper.weight_decay, "beta1": hyper.betas[0], "beta2": hyper.betas[1], "eps": hyper.eps,
        "lr-scheduler": "const", "warmup": 0, "precision": {"fp32": "fp32", "bf16": "amp_bf16"}[precision],
        "device": device, "log-every-n-steps": 1, "report-to": "wandb", "logs": "none", "name": "peer",
    }  # fmt: skip
    return ["--lock-image", *(part for key, value in options.items() for part in (f"--{key}", str(value)))]
