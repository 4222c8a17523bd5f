"""Minutes from raw pairs to a champion with an AO@10 of 40 on the synthetic dataset: the rules are in docs/speedrun.md.

    make speedrun

The run is in a fresh clone of the last commit, so that nothing is left from an earlier one. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from components.core.system.errors import InputError, run_command

METRIC, GOAL = "paraphrased_retrieval/ao_at_10", 0.40
_SIDE, _REPEATS = 2048, 20


def gflops() -> float:
    """Billions of float32 operations per second of this machine's matrix product, the best of several."""
    import torch

    left, right = torch.rand(_SIDE, _SIDE), torch.rand(_SIDE, _SIDE)
    best = float("inf")
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - begun)
    return 2 * _SIDE**3 / best / 1e9


def timed(clone: Path, profile: str) -> tuple[float, str]:
    """Minutes of the pipeline in `clone`, whose environment is that of this process, and the champion's name."""
    commands = ["cliptune", "dvc"]
    cliptune, dvc = (str(Path(sys.executable).with_name(command)) for command in commands)
    places = {"PYTHONPATH": str(clone), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")} | places
    subprocess.run([cliptune, "profile", "apply", profile], cwd=clone, env=environment, check=True)
    begun = time.perf_counter()
    for command in ([dvc, "repro", "compare"], [cliptune, "promote"]):
        subprocess.run(command, cwd=clone, env=environment, check=True)
    minutes = (time.perf_counter() - begun) / 60
    history = subprocess.run(
        [cliptune, "history", "--json"], cwd=clone, env=environment, check=True, capture_output=True, text=True
    )
    promoted = [row["encoder"] for row in json.loads(history.stdout) if row["outcome"] == "promoted"]
    if not promoted:
        raise InputError("no encoder was promoted: the output above names the cause")
    return minutes, str(promoted[-1])


def _run(profile: str) -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", ".", str(clone)], check=True)
        minutes, champion = timed(clone, profile)
        value = json.loads((clone / "reports" / "metrics" / f"{champion}.json").read_text())["metrics"][METRIC]["value"]
    print(json.dumps({"minutes": round(minutes, 2), "ao_at_10": round(100 * value, 1), "gflops": round(gflops()),
                      "commit": commit}))  # fmt: skip
    if value < GOAL:
        raise InputError(f"AO@10 is {100 * value:.1f}, below {100 * GOAL:.0f}: this run does not count")


def main(profile: Annotated[str, typer.Option(help="The profile that is timed.")] = "speedrun") -> None:
    """Time the pipeline of the last commit; uncommitted changes do not count."""
    run_command(lambda: _run(profile))


if __name__ == "__main__":
    typer.run(main)
