"""Assigns the GPUs of this machine to stages: no two flows compute on one, and a stage waits for its number of them."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_USERS = ("base", "embed", "students", "synthesize@", "train@", "evaluate@")
"""Stages that compute on a GPU, if available."""


@contextmanager
def own_gpus(stage: str, ranks: int) -> Iterator[Mapping[str, str]]:
    """Hold the GPUs of a stage, and wait until they are free. Without GPUs nothing waits.

    Args:
        ranks: GPUs that a `train@` stage uses; every other stage uses one.

    Yields:
        Environment variables that restrict the stage to its devices.
    """
    devices = _gpus() if stage.startswith(_USERS) else []
    wanted = min(ranks if stage.startswith("train@") else 1, len(devices))
    while True:
        with ExitStack() as held:
            chosen = _locked(devices, wanted, held)
            if len(chosen) == wanted:
                yield {_VISIBLE: ",".join(chosen)} if chosen else {}
                return
        time.sleep(1)


def _locked(devices: list[str], wanted: int, held: ExitStack) -> list[str]:
    """Lock up to `wanted` free devices of this host; the system releases those of a process that dies."""
    folder = user_cache_path("cliptune") / "gpus"
    folder.mkdir(parents=True, exist_ok=True)
    chosen: list[str] = []
    for device in devices:
        if len(chosen) == wanted:
            break
        lock = FileLock(folder / f"{socket.gethostname()}-{device.replace('/', '-')}.lock", thread_local=False)
        with suppress(Timeout):
            held.enter_context(lock.acquire(timeout=0))
            chosen.append(device)
    return chosen


def _gpus() -> list[str]:
    """The GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else all that the driver lists."""
    if _VISIBLE in os.environ:
        return [device for device in os.environ[_VISIBLE].split(",") if device]
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(lines))] if done.returncode == 0 else []
