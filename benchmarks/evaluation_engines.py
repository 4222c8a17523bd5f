"""Both engines as the commands that users type, each with the machine to itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evaluation_data import Prepared
from components.core.system.errors import InputError

KS = (1, 5, 10)


@dataclass(frozen=True)
class Timed:
    """Seconds of a whole command, and its results: recall@k both ways, top-1 and top-5."""

    seconds: float
    found: dict[str, float]


def run_ours(prepared: Prepared, model: str, folder: Path) -> tuple[Timed, Timed]:
    """`cliptune evaluate` twice: with nothing cached, and for another encoder of the same image tower."""
    command = [sys.executable, "-m", "components.cli", "evaluate", "--encoder", f"{model}:{prepared.weights}"]
    command += ["--benchmark", "flickr30k_retrieval", "--benchmark", "zero_shot_cifar100", "--allow-partial"]
    command += ["--data-dir", str(prepared.data), "--results", str(folder / "results"), "--overwrite"]
    seconds = [_timed(command, folder) for _ in range(2)]
    # The other folders hold class names and pairs for prompt tasks.
    own = next((folder / "results").rglob("zero_shot_cifar100.json")).parent
    values: dict[str, float] = {}
    for name in ("flickr30k_retrieval", "zero_shot_cifar100"):
        report = json.loads((own / f"{name}.json").read_text())
        values |= {metric: value["value"] for metric, value in report["metrics"].items()}
    found = {f"t2i_recall_at_{k}": values[f"flickr30k_retrieval/text_to_image/recall_at_{k}"] for k in KS}
    found |= {f"i2t_recall_at_{k}": values[f"flickr30k_retrieval/image_to_text/recall_at_{k}"] for k in KS}
    found |= {f"top{depth}": values[f"zero_shot_cifar100/ensemble/top{depth}"] for depth in (1, 5)}
    return Timed(seconds[0], found), Timed(seconds[1], found)


def run_peer(prepared: Prepared, model: str, folder: Path) -> Timed:
    """`clip_benchmark eval` for both tasks, in float32 as ours."""
    common = [sys.executable, "-m", "benchmarks.clip_benchmark_command", "eval", "--model", model, "--no_amp"]
    common += ["--pretrained", str(prepared.weights), "--num_workers", "2"]
    retrieval = [*common, "--dataset", "wds/flickr30k", "--dataset_root", str(prepared.retrieval)]
    retrieval += ["--task", "zeroshot_retrieval", "--recall_k", *map(str, KS), "--output", str(folder / "r.json")]
    classes = [*common, "--dataset", "wds/cifar100", "--dataset_root", str(prepared.classes)]
    classes += ["--task", "zeroshot_classification", "--output", str(folder / "c.json")]
    seconds = _timed(retrieval, folder) + _timed(classes, folder)
    recalls, accuracies = (json.loads((folder / name).read_text())["metrics"] for name in ("r.json", "c.json"))
    found = {f"t2i_recall_at_{k}": recalls[f"image_retrieval_recall@{k}"] for k in KS}
    found |= {f"i2t_recall_at_{k}": recalls[f"text_retrieval_recall@{k}"] for k in KS}
    found |= {f"top{depth}": accuracies[f"acc{depth}"] for depth in (1, 5)}
    return Timed(seconds, found)


def largest_difference(first: Timed, second: Timed) -> float:
    """Between the two engines' numbers."""
    return max(abs(first.found[name] - second.found[name]) for name in second.found)


def _timed(command: list[str], folder: Path) -> float:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(f"{command[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return time.perf_counter() - started
