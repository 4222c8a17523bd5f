"""Servers for tests, MLflow's and others, on free ports of 127.0.0.1, stopped afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from tests.support.waiting import started, wait_until

_UP_WITHIN = 600.0


@contextmanager
def running(
    command: Sequence[str], health: str, folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose address `health` answers; its whole process group ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment}
    process = started(command, log, cwd=folder, env=environment)

    def fault() -> str:
        return f"{health} does not answer: {log.read_text(errors='replace')[-3000:]}"

    def answers() -> bool:
        assert process.poll() is None, fault()
        # URLError is an OSError.
        with suppress(OSError), urlopen(health, timeout=10):
            return True
        return False

    try:
        wait_until(answers, _UP_WITHIN, fault)
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
