"""Worker processes of the engine `vllm`: started on their GPUs, spoken to by JSON lines, never left behind."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from more_itertools import batched

from components.captions.request import Request
from components.captions.vllm import worker as vllm_worker
from components.core.errors import InputError
from components.core.processes import signal_group

Line = list[dict[str, Any]]
"""What a worker says to a block: `answer` and whether it was `cut`, or `failure`, of each row, in order."""

_FAULT = re.compile(r"\w*(?:Error|Exception): \S.*")
_NOT_THE_CAUSE = re.compile(r"[Ss]ee (?:root cause|stack trace)")


class Worker:
    """One process; `blocks` are the requests that it has not replied to yet, oldest first."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: IO[bytes], inbox: Inbox) -> None:
        """Start the process; what it says is put into `inbox`, and None when it ends."""
        self.blocks: deque[Sequence[Request]] = deque()
        self._log, self._gone = log, False
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
            text=True,
            encoding="utf-8",
        )
        threading.Thread(target=self._listen, args=(inbox,), daemon=True).start()

    def _listen(self, inbox: Inbox) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                inbox.put((self, json.loads(line)))
        finally:
            inbox.put((self, None))

    def send(self, message: Any) -> None:
        """Pass a message to the process.

        Raises:
            InputError: it is dead.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.fault() from None

    def fault(self) -> InputError:
        """Why a dead process died: the last error in its log, the signal that ended it, or its exit code."""
        # Its output ends a little before it does, and its own exit code says more than the signal sent below.
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.kill()
        code = self.process.returncode
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        found = [match[0] for line in lines if (match := _FAULT.search(line)) and not _NOT_THE_CAUSE.search(line)]
        said = [line.strip() for line in lines if line.strip()]
        if found:
            reason = found[-1][:300]
        elif code < 0:
            reason = f"ended by {signal.Signals(-code).name}, which the system sends when memory is short"
        else:
            reason = f"exit code {code} after: {(said or ['nothing'])[-1][:200]}"
        return InputError(
            f"engine 'vllm': a worker died ({reason}): correct the model's settings in params.yaml under "
            "synthesize.models, and run the same command again to continue"
        )

    def dismiss(self) -> None:
        """End its input, which makes the process end in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> None:
        """Return when a dismissed process has ended, or has taken too long."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2 * vllm_worker.GRACE)

    def kill(self) -> None:
        """End the process and its children; once, because the number of a group that is gone may be another's."""
        if not self._gone:
            signal_group(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._gone = True


Inbox = queue.SimpleQueue[tuple[Worker, Line | None]]


@contextmanager
def start_workers(python: Path, groups: Sequence[str | None], log: Path | None, inbox: Inbox) -> Iterator[list[Worker]]:
    """One worker per group of GPUs; they end with the block, at once when it fails.

    Args:
        python: the interpreter of vLLM's environment.
        groups: what each worker sees of the GPUs, see `device_groups`.
        log: a folder for their logs, or None.
        inbox: where their lines arrive.

    Raises:
        InputError: the environment is missing.
    """
    if not python.is_file():
        raise InputError(
            f"engine 'vllm' has no environment ({python} is missing): run `make llm-server`, or correct the model's "
            "key `python`"
        )
    # Not resolved: a virtual environment's Python is a link, and knows its environment by the link's place.
    command = [str(python.absolute()), "-P", vllm_worker.__file__]
    workers: list[Worker] = []
    try:
        for number, devices in enumerate(groups):
            workers.append(Worker(command, _environment(devices, len(groups)), _log(log, number), inbox))
        yield workers
        for worker in workers:
            worker.dismiss()
        for worker in workers:
            worker.wait()
    finally:
        for worker in workers:
            worker.kill()


def device_groups(processes: int | None, per_process: int) -> list[str | None]:
    """The GPUs of each worker as `CUDA_VISIBLE_DEVICES` wants them; None on a machine without.

    Raises:
        InputError: there are too few.
    """
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        return [None] * (processes or 1)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = (named.split(",") if named else [str(number) for number in range(count)])[:count]
    groups: list[str | None] = [",".join(group) for group in batched(names, per_process) if len(group) == per_process]
    if not groups or (processes or 1) > len(groups):
        wanted = (processes or 1) * per_process
        raise InputError(
            f"engine 'vllm' needs {wanted} GPUs and this process sees {count}: correct the model's `processes` or "
            "its argument tensor_parallel_size"
        )
    return groups[:processes]


def _log(folder: Path | None, number: int) -> IO[bytes]:
    if folder is None:
        return tempfile.TemporaryFile()
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / f"worker-{number}.log").open("w+b")


def _environment(devices: str | None, workers: int) -> dict[str, str]:
    """This process's environment, without what makes the other environment find this one's packages."""
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    # A forked child would hold the worker's pipes open, and its death would go unseen.
    own = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_NO_USAGE_STATS": "1"}
    if devices is not None:
        return kept | own | {"CUDA_VISIBLE_DEVICES": devices}
    # On a CPU the engine's own processes have nothing to overlap with, and each takes long to start. Without them vLLM
    # leaves the number of threads to the environment.
    threads = max(1, len(os.sched_getaffinity(0)) // workers)
    return {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(threads)} | kept | own
