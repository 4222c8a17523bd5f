"""Servers for tests, MLflow's and others, on free ports of 127.0.0.1, stopped afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

_UP_WITHIN = 600.0


@contextmanager
def running(
    command: Sequence[str], health: str, folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose address `health` answers; its whole process group ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        _wait(process, health, log)
        yield process
    finally:
        # Nothing of it is kept, so it need not end in order.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def tracking_server(port: int, folder: Path, backend: str) -> Iterator[str]:
    """A tracking server that serves artifacts too; yields its address."""
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", backend, "--artifacts-destination", str(folder / "artifacts")]
    # Otherwise MLflow keeps half a dozen processes for jobs that nobody submits.
    with running(command, f"{address}/health", folder, {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}):
        yield address


def _wait(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    end = time.monotonic() + _UP_WITHIN
    while True:
        try:
            with urlopen(health, timeout=10):
                return
        except (URLError, OSError) as error:
            if process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"{health} does not answer ({error}): {log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
