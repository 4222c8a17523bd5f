"""Minutes from raw pairs to a champion with an AO@10 of 40 on the synthetic dataset: the rules are in docs/speedrun.md.

    make speedrun
    python -m research.measure.speedrun --profile laion --goal 60

The run is in a fresh clone of the last commit, so that nothing is left from an earlier one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from components.core.system.errors import InputError
from research.measure.record import Found, Options, run

OPTIONS: Options = {
    "profile": ("speedrun", "the profile that is timed"),
    "goal": (40.0, "the champion's AO@10 in percent; a run below it fails"),
}
METRIC = "paraphrased_retrieval/ao_at_10"
_SIDE, _REPEATS = 2048, 20


def measure(profile: str, goal: float) -> Found:
    """Time the pipeline of the last commit; uncommitted changes do not count.

    Raises:
        InputError: no encoder was promoted, or the champion is below the goal.
    """
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", ".", str(clone)], check=True)
        minutes, champion = timed(clone, profile)
        metrics = json.loads((clone / "reports" / "metrics" / f"{champion}.json").read_text())["metrics"]
    value = 100 * metrics[METRIC]["value"]
    if value < goal:
        raise InputError(f"AO@10 is {value:.1f} after {minutes:.2f} minutes, below {goal:g}: this run does not count")
    return {"minutes": round(minutes, 2), "ao_at_10": round(value, 1), "gflops": round(gflops())}


def timed(clone: Path, profile: str) -> tuple[float, str]:
    """Minutes of the pipeline in `clone`, with the environment of this process, and the champion's name."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
    environment |= {"PYTHONPATH": str(clone), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = partial(subprocess.run, cwd=clone, env=environment, check=True, text=True)
    command(["cliptune", "profile", "apply", profile])
    begun = time.perf_counter()
    command(["dvc", "repro", "compare"])
    command(["cliptune", "promote"])
    minutes = (time.perf_counter() - begun) / 60
    history = json.loads(command(["cliptune", "history", "--json"], stdout=subprocess.PIPE).stdout)
    promoted = [row["encoder"] for row in history if row["outcome"] == "promoted"]
    if not promoted:
        raise InputError("no encoder was promoted: the output above names the cause")
    return minutes, str(promoted[-1])


def gflops() -> float:
    """Billions of float32 operations per second of this machine's matrix product, the best of several."""
    left, right, best = torch.rand(_SIDE, _SIDE), torch.rand(_SIDE, _SIDE), float("inf")
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - begun)
    return 2 * _SIDE**3 / best / 1e9


def rows(found: Found) -> Iterator[Sequence[object]]:
    """The table: one row, as in docs/speedrun.md."""
    yield "minutes", "AO@10", "gflops", "commit"
    yield found["minutes"], found["ao_at_10"], found["gflops"], found["commit"][:8]


if __name__ == "__main__":
    run("speedrun", __doc__, OPTIONS, measure, rows)
