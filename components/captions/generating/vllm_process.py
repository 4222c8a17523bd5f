"""vLLM's server as a child process from its own environment, on a free local port and with a generated key."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from components.core.system.errors import InputError
from components.core.system.processes import end, supervised

_GRACE_S = 5.0
"""Time limit for vLLM to end after SIGTERM."""
_POLL_S = 0.5
_FAULT = re.compile(r"(?:\w*(?:Error|Exception): |Value error, )(?!.*[Ss]ee (?:root cause|stack trace))\S.*")


@dataclass(frozen=True)
class VllmProcess:
    """A running vLLM server."""

    url: str
    key: str
    _process: subprocess.Popen[bytes]
    _log: Path

    def check(self) -> None:
        """Raise `InputError` with the last error in its log if it has ended."""
        if (code := self._process.poll()) is None:
            return
        lines = [line.strip() for line in self._log.read_text("utf-8", "replace").splitlines() if line.strip()]
        faults = [match[0] for line in lines if " WARNING " not in line and (match := _FAULT.search(line))]
        reason = (faults or lines or ["no output"])[-1][:300]
        raise InputError(
            f"engine 'vllm': vLLM died with exit code {code} ({reason}): correct the model's settings in params.yaml "
            "under synthesize.llms, and run the same command again to continue"
        )

    def wait_until_up(self, within_s: float) -> None:
        """Return when the model is loaded; raises `InputError` if vLLM died, or has taken too long."""
        import httpx2

        deadline, health = time.monotonic() + within_s, self.url.removesuffix("v1") + "health"
        with httpx2.Client(trust_env=False) as client:
            while time.monotonic() < deadline:
                self.check()
                with suppress(httpx2.TransportError):
                    if client.get(health).is_success:
                        return
                time.sleep(_POLL_S)
        raise InputError(
            f"engine 'vllm': the model was not loaded after {within_s:g} seconds: give the model a longer `wait_s`, "
            "or set its folder `log` and read the log"
        )


@contextmanager
def serve(
    python: Path, flags: Sequence[str], environment: Mapping[str, str], log: Path | None, within_s: float
) -> Iterator[VllmProcess]:
    """Run vLLM's server for the length of the block, and no longer than this process lives.

    The variables of `environment` are added where this process does not have them.
    """
    if not python.is_file():
        raise InputError(
            f"engine 'vllm' has no environment ({python} is missing): run `make llm-server`, or correct the model's "
            "key `python`"
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The path is not resolved: a virtual environment's Python is a link that finds its environment by its own place.
    # The module is `vllm serve` with one front; the command itself does not start in vLLM's CPU build.
    command = [str(python.absolute()), "-P", "-m", "vllm.entrypoints.openai.api_server", *flags]
    # These variables would add this environment's packages.
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    own = {"VLLM_NO_USAGE_STATS": "1", "VLLM_API_KEY": secrets.token_urlsafe()}
    with tempfile.TemporaryDirectory(prefix="cliptune-vllm-") as temporary:
        folder = log or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "vllm.log").open("wb") as stream:
            process = subprocess.Popen(
                supervised([*command, "--host=127.0.0.1", f"--port={port}"], _GRACE_S),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**environment, **kept, **own},
                start_new_session=True,
            )
        running = VllmProcess(f"http://127.0.0.1:{port}/v1", own["VLLM_API_KEY"], process, folder / "vllm.log")
        try:
            running.wait_until_up(within_s)
            yield running
        finally:
            end(process, 4 * _GRACE_S)
