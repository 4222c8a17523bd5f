"""GPU tokens: limits the number of stages that compute on GPUs at the same time, and assigns devices to each."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from prefect import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

LIMIT, DEFAULT_LIMIT = "CLIPTUNE_GPU_LIMIT", "gpu"
"""Environment variable of a worker: the global concurrency limit whose slots are its GPUs; and its default."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOCKS = Path("state/gpus")
_USERS = ("base", "embed", "students", "synthesize@", "train@", "evaluate@")
"""Stages that compute on a GPU, if available."""


@contextmanager
def gpu_tokens(stage: str, ranks: int) -> Iterator[Mapping[str, str]]:
    """Hold the GPUs of a stage: slots of the limit `gpu`, and the devices themselves.

    Without that limit, which `make stack` sets if it finds GPUs, stages neither count nor wait.

    Args:
        ranks: GPUs that a `train@` stage uses; every other stage uses one.

    Yields:
        Environment variables that restrict the stage to its devices.
    """
    limit = os.environ.get(LIMIT, DEFAULT_LIMIT)
    if not stage.startswith(_USERS) or not _is_set(limit):
        yield {}
        return
    wanted = ranks if stage.startswith("train@") else 1
    with concurrency(limit, occupy=wanted), ExitStack() as held:
        devices = gpus()
        chosen = _take(devices, min(wanted, len(devices)), held)
        yield {_VISIBLE: ",".join(chosen)} if chosen else {}


def gpus() -> list[str]:
    """The GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else all that the driver lists."""
    if _VISIBLE in os.environ:
        return [device for device in os.environ[_VISIBLE].split(",") if device]
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(lines))] if done.returncode == 0 else []


def _is_set(limit: str) -> bool:
    with get_client(sync_client=True) as client:
        try:
            return client.read_global_concurrency_limit_by_name(limit).active
        except ObjectNotFound:
            return False


def _take(devices: list[str], wanted: int, held: ExitStack) -> list[str]:
    """Lock `wanted` devices; the system releases those of a process that dies."""
    _LOCKS.mkdir(parents=True, exist_ok=True)
    while True:
        chosen: list[str] = []
        with ExitStack() as tried:
            for device in devices:
                if len(chosen) == wanted:
                    break
                lock = FileLock(_LOCKS / f"{device.replace('/', '-')}.lock", thread_local=False)
                try:
                    tried.enter_context(lock.acquire(timeout=0))
                except Timeout:
                    continue
                chosen.append(device)
            if len(chosen) == wanted:
                held.enter_context(tried.pop_all())
                return chosen
        # All are locked: the limit counts GPUs of other hosts too, or another checkout uses these.
        time.sleep(1)
