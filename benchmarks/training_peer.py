"""The other side of the training benchmark: `python -m open_clip_train.main --lock-image`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.training_data import Prepared
from components.core.system.progress import bar
from components.training.methods.contract.method import Optimisation

_RECORDER = Path(__file__).parent / "recorder"


@dataclass(frozen=True)
class Peer:
    """What open_clip_train logged of every step.

    Attributes:
        losses: before each step's update.
        seconds: whole steps, waiting for data included.
        waits: of these, the seconds until the batch was there.
        processor: processor time used by the end of each step, over all threads, in seconds.
    """

    losses: list[float]
    seconds: list[float]
    waits: list[float]
    processor: list[float]


def run_peer(data: Prepared, model: str, plan: Optimisation, device: str, precision: str, threads: int) -> Peer:
    """Fine-tune the text tower for `plan.epochs` steps; one epoch is one batch, so its order does not matter.

    Raises:
        RuntimeError: it failed; the end of its output is the message.
    """
    # A folder of its own: open_clip_train ends at once, as if all were well, where it finds an earlier run's log.
    folder = Path(tempfile.mkdtemp(prefix="peer-", dir=data.folder))
    record, output = folder / "peer.jsonl", folder / "peer.log"
    record.touch()
    environment = os.environ | {
        "PYTHONPATH": str(_RECORDER),
        "TRAINING_RECORD": str(record),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "open_clip_train.main", *_options(data, model, plan, device, precision)]
    with (
        output.open("w") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT) as process,
        bar("open_clip_train", plan.epochs, "step") as progress,
    ):
        try:
            while process.poll() is None:
                progress.update(_count(record) - progress.n)
                time.sleep(0.2)
        finally:
            process.kill()
        progress.update(_count(record) - progress.n)
    steps = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    if process.returncode or len(steps) != plan.epochs:
        raise RuntimeError(f"open_clip_train failed:\n{output.read_text()[-3000:]}")
    return Peer(
        losses=[step["train/loss"] for step in steps],
        seconds=[step["train/batch_time"] for step in steps],
        waits=[step["train/data_time"] for step in steps],
        processor=[step["processor_seconds"] for step in steps],
    )


def _options(data: Prepared, model: str, plan: Optimisation, device: str, precision: str) -> list[str]:
    options: dict[str, object] = {
        "train-data": data.csv,
        "dataset-type": "csv",
        "model": model,
        "pretrained": data.weights,
        "batch-size": plan.batch_size,
        "epochs": plan.epochs,
        "lr": plan.lr,
        "wd": plan.weight_decay,
        "beta1": plan.betas[0],
        "beta2": plan.betas[1],
        "eps": plan.eps,
        "lr-scheduler": "const",
        "warmup": 0,
        # Workers would start again for every epoch, which here is a step.
        "workers": 0,
        # The whole image, as this project's embedding reads it.
        "aug-cfg": "scale=(1.0,1.0)",
        "precision": {"fp32": "fp32", "bf16": "amp_bf16"}[precision],
        "device": device,
        "log-every-n-steps": 1,
        "report-to": "wandb",
        "logs": "none",
        "name": "peer",
    }
    return ["--lock-image", *(part for key, value in options.items() for part in (f"--{key}", str(value)))]


def _count(record: Path) -> int:
    return record.read_bytes().count(b"\n")
