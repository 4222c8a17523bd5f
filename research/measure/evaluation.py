"""How much faster is `cliptune evaluate` than the command `clip_benchmark`, and does it find the same?

Text retrieval and zero-shot classification of one model with random weights on the same pictures and texts, each
engine's whole command. Then the same for a second encoder of the same image tower, whose image features are cached.

    python -m research.measure.evaluation
    python -m research.measure.evaluation --model ViT-S-32-alt --images 12
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from components.core.system.errors import InputError
from research.measure.evaluation_data import WEIGHTS, prepare
from research.measure.record import Found, Options, run

OPTIONS: Options = {
    "model": ("ViT-B-32", "an open_clip model"),
    "images": (200, "images of each task; each has five captions, and the hundred classes have ten prompts each"),
}
KS = (1, 5, 10)
RETRIEVAL, CLASSES = "flickr30k_retrieval", "zero_shot_cifar100"
SAME = {f"{RETRIEVAL}/text_to_image/recall_at_{k}": f"image_retrieval_recall@{k}" for k in KS}
SAME |= {f"{RETRIEVAL}/image_to_text/recall_at_{k}": f"text_retrieval_recall@{k}" for k in KS}
SAME |= {f"{CLASSES}/ensemble/top{depth}": f"acc{depth}" for depth in (1, 5)}
"""Our metrics, and clip_benchmark's of the same value."""


def measure(model: str, images: int) -> Found:
    """Run both engines and compare them."""
    with tempfile.TemporaryDirectory(prefix="evaluation-") as name:
        folder = Path(name)
        texts = prepare(folder, model, images)
        peer, theirs = run_peer(model, folder)
        # Nothing is cached, then all features of images are.
        (cold, ours), (warm, _) = (run_ours(model, folder) for _ in range(2))
    return {
        "model": model,
        "images": 2 * images,
        "texts": texts,
        "speedup_vs_clip_benchmark": peer / cold,
        "speedup_with_image_features_cached": peer / warm,
        "seconds_clip_benchmark": peer,
        "seconds_cliptune": cold,
        "seconds_cliptune_image_features_cached": warm,
        "largest_difference": max(abs(ours[one] - theirs[other]) for one, other in SAME.items()),
    }


def run_ours(model: str, folder: Path) -> tuple[float, dict[str, float]]:
    """`cliptune evaluate`; its seconds, and its metrics."""
    command = ["components.cli", "evaluate", "--encoder", f"{model}:{folder / WEIGHTS}", "--benchmark", RETRIEVAL]
    command += ["--benchmark", CLASSES, "--allow-partial", "--data-dir", str(folder / "data"), "--overwrite"]
    seconds = _timed([*command, "--results", str(folder / "results")], folder)
    # The other folders hold class names and pairs for prompt tasks.
    own = next((folder / "results").rglob(f"{CLASSES}.json")).parent
    reports = (json.loads((own / f"{name}.json").read_text())["metrics"] for name in (RETRIEVAL, CLASSES))
    return seconds, {metric: value["value"] for report in reports for metric, value in report.items()}


def run_peer(model: str, folder: Path) -> tuple[float, dict[str, float]]:
    """`clip_benchmark eval` for both tasks, in float32 as ours; its seconds, and its metrics."""
    common = ["research.measure.clip_benchmark_command", "eval", "--model", model, "--no_amp"]
    common += ["--pretrained", str(folder / WEIGHTS), "--num_workers", "2"]
    retrieval = [*common, "--dataset", "wds/flickr30k", "--dataset_root", str(folder / "retrieval")]
    retrieval += ["--task", "zeroshot_retrieval", "--recall_k", *map(str, KS), "--output", str(folder / "r.json")]
    classes = [*common, "--dataset", "wds/cifar100", "--dataset_root", str(folder / "classes")]
    classes += ["--task", "zeroshot_classification", "--output", str(folder / "c.json")]
    seconds = _timed(retrieval, folder) + _timed(classes, folder)
    recalls, accuracies = (json.loads((folder / name).read_text())["metrics"] for name in ("r.json", "c.json"))
    return seconds, recalls | accuracies


def _timed(command: Sequence[str], folder: Path) -> float:
    """Seconds of a module's command, which has the machine to itself."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise InputError(f"{command[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return time.perf_counter() - started


def rows(found: Found) -> Iterator[Sequence[object]]:
    """The table: each engine's seconds."""
    yield (f"{found['images']} images, {found['texts']} texts", "seconds", "times as fast")
    yield "clip_benchmark", found["seconds_clip_benchmark"], None
    yield "cliptune", found["seconds_cliptune"], found["speedup_vs_clip_benchmark"]
    cached = found["seconds_cliptune_image_features_cached"], found["speedup_with_image_features_cached"]
    yield "cliptune, image tower seen before", *cached
    yield "largest difference of a number", found["largest_difference"], None


if __name__ == "__main__":
    run("evaluation", __doc__, OPTIONS, measure, rows)
