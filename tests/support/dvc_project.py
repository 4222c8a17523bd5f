"""A checkout with a real DVC pipeline whose stages take no time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).parents[2]

_WORK = """
import sys, time
from pathlib import Path

name, seconds, *_ = sys.argv[1:]
with Path("ran.txt").open("a") as stream:
    print(name, file=stream)
time.sleep(float(seconds))
Path("out", f"{name}.txt").write_text(name)
"""


def make_project(folder: Path, stages: Mapping[str, list[str]], seconds: float = 0.0) -> None:
    """A git repository with DVC, the product's `params.yaml`, and one stage for each entry of `stages`: name -> needs.

    Every stage appends its name to `ran.txt`, sleeps, and writes `out/<name>.txt`; all of them read `work.py`. Stages
    of one `foreach` (`train@a`, `train@b`) have equally many needs.
    """
    (folder / "out").mkdir(parents=True, exist_ok=True)
    (folder / "work.py").write_text(_WORK)
    (folder / "params.yaml").write_text((REPO / "params.yaml").read_text("utf-8"))
    (folder / ".gitignore").write_text("/out\n/ran.txt\n/state\n/models\n")
    made: dict[str, Any] = {}
    for name, needs in stages.items():
        head, _, key = name.partition("@")
        if not key:
            made[name] = _stage(name, needs, seconds)
            continue
        numbered = {f"need{number}": need for number, need in enumerate(needs)}
        body = _stage(f"{head}@${{key}}", [f"${{item.{number}}}" for number in numbered], seconds)
        group = made.setdefault(head, {"foreach": {}, "do": body})
        group["foreach"][key] = numbered
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": made}))
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    # The files of `dvc init`, which takes seconds.
    (folder / ".dvc").mkdir(exist_ok=True)
    (folder / ".dvc" / "config").touch()
    (folder / ".dvc" / ".gitignore").write_text("/config.local\n/tmp\n/cache\n")


def _stage(name: str, needs: list[str], seconds: float) -> dict[str, Any]:
    deps = ["work.py", *(f"out/{need}.txt" for need in needs)]
    return {"cmd": f"{sys.executable} work.py {name} {seconds}", "deps": deps, "outs": [f"out/{name}.txt"]}


def ran(folder: Path) -> list[str]:
    """The stages that ran, in order."""
    path = folder / "ran.txt"
    return path.read_text().split() if path.exists() else []
