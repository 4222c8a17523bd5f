"""The program of each machine of a job of infra/launch: DVC with the stage on the first, its ranks on the others.

python -m components.cli.node train@paraclip
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from components.core.system.errors import InputError, run_command
from components.core.system.processes import supervised
from components.core.system.stage_graph import DVC, make_linked_lock, outdated, read_graph

SPREAD = ("embed", "train")
"""Stages that compute with ranks on several machines."""
_GRACE_S = 100.0
"""Seconds in which a stopped stage saves its checkpoint; the template of Slurm leaves 120."""
_REPRO = (*DVC, "--wait-for-lock", "repro")


def command_of(stage: str, node: int, nodes: int) -> list[str]:
    """The command of machine `node` of `nodes`.

    With several machines the stages above must be up to date; the first machine's DVC stores the result. It may not
    take it from its cache of runs, as the others wait for its ranks.
    """
    if nodes == 1:
        return [*_REPRO, stage]
    group, _, entry = stage.partition("@")
    if group not in SPREAD:
        raise InputError(f"stage '{stage}' computes on one machine: start one; {' and '.join(SPREAD)} take more")
    if node == 0:
        _check_now(stage)
        return [*_REPRO, "--single-item", "--no-run-cache", stage]
    from components.core.settings.block import read_yaml

    declared = read_yaml(Path("dvc.yaml").read_text("utf-8"))["stages"].get(group)
    if declared is None:
        raise InputError(f"dvc.yaml has no stage '{group}'")
    words = shlex.split(declared.get("do", declared)["cmd"])[1:]
    return [sys.executable, *(entry if word == "$DVC_STAGE" else word for word in words)]


def _check_now(stage: str) -> None:
    """Raise InputError for a stage that is up to date, or needs one that is not: the other machines would wait."""
    graph = read_graph()
    if stage not in graph.needs:
        raise InputError(f"dvc.yaml has no stage '{stage}': `cliptune plan` lists them")
    old = outdated(graph, graph.upstream([stage]))
    if first := sorted(old - {stage}):
        raise InputError(f"stage '{stage}' needs {first[0]}, which is out of date: run that first")
    if not old:
        raise InputError(f"stage '{stage}' is up to date: there is nothing to run")


def _alone(name: str) -> int:
    """The open file of a lock that is held until this process and its supervisor have ended.

    Where a scheduler kills this process and starts the job again, the supervisor may still have the stage save its
    state, and a second run of the stage would fail meanwhile.
    """
    folder = Path(".dvc", "tmp")
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder / f"{name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{name}: waiting until the processes of an earlier start have ended", flush=True)
        fcntl.flock(held, fcntl.LOCK_EX)
    return held


def main(stage: str) -> None:
    """Run this machine's part. SIGTERM ends its processes after they saved their state."""
    node, nodes = (
        int(os.environ.get(name, default)) for name, default in (("PET_NODE_RANK", "0"), ("PET_NNODES", "1"))
    )
    make_linked_lock()
    held = _alone(f"{stage}-{node}")
    process = subprocess.Popen(supervised(command_of(stage, node, nodes), _GRACE_S), pass_fds=[held])
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    raise SystemExit(process.wait())


if __name__ == "__main__":
    run_command(lambda: main(sys.argv[1]))
