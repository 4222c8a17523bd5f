"""A command in a process group of its own, with its costs: seconds, memory of all its processes, disk."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from components.core.system.processes import signal_group

_LOOK_EVERY, _WALK_EVERY = 0.2, 5.0
_LOG_END = 2_000


@dataclass
class Taken:
    """Costs of a command.

    Attributes:
        seconds: by the wall.
        processor_seconds: of all its processes, which depends less on what else the machine does.
        peak_memory_gb: proportional memory (PSS) of all its processes, with the pages of files that they have mapped.
        peak_own_memory_gb: the same without these pages, which the system can drop at any time.
        disk_gb: size of the files that it left in its folder; `peak_disk_gb` is the most that it had there at once.
    """

    seconds: float = 0.0
    processor_seconds: float = 0.0
    peak_memory_gb: float = 0.0
    peak_own_memory_gb: float = 0.0
    disk_gb: float = 0.0
    peak_disk_gb: float = 0.0


@dataclass
class Watch:
    """Looks at a process and those that it started until it is stopped."""

    process: int
    folder: Path
    before: int
    taken: Taken
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Look until it is stopped."""
        walked = time.monotonic()
        while not self.ended.wait(_LOOK_EVERY):
            memory, own = _memory(self.process)
            self.taken.peak_memory_gb = max(self.taken.peak_memory_gb, memory / 1e9)
            self.taken.peak_own_memory_gb = max(self.taken.peak_own_memory_gb, own / 1e9)
            if time.monotonic() > walked + _WALK_EVERY:
                self.look_at_disk()
                walked = time.monotonic()

    def look_at_disk(self) -> None:
        """Note how much the folder has grown."""
        self.taken.disk_gb = (used(self.folder) - self.before) / 1e9
        self.taken.peak_disk_gb = max(self.taken.peak_disk_gb, self.taken.disk_gb)


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    until: Callable[[], bool] = lambda: False,
) -> Taken:
    """Run a command to its end, or until something holds, which ends its process group.

    Raises:
        RuntimeError: it failed; the message has the end of its output. Or there is no /proc.
    """
    if sys.platform != "linux":
        raise RuntimeError("memory is read from /proc, which this system lacks")
    taken, started, processor = Taken(), time.perf_counter(), _processor_seconds()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=dict(environment), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        watch = Watch(process.pid, folder, used(folder), taken)
        thread = threading.Thread(target=watch.run, daemon=True)
        thread.start()
        try:
            stopped = _wait(process, until)
            taken.seconds = time.perf_counter() - started
        finally:
            if process.poll() is None:
                signal_group(process.pid, signal.SIGTERM)
                process.wait()
            watch.ended.set()
            thread.join()
    watch.look_at_disk()
    taken.processor_seconds = _processor_seconds() - processor
    if process.returncode and not stopped:
        log_end = log.read_text("utf-8", "replace")[-_LOG_END:]
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {log_end}")
    return taken


def _wait(process: subprocess.Popen[bytes], until: Callable[[], bool]) -> bool:
    """Whether it was stopped before its end."""
    while process.poll() is None:
        if until():
            return True
        time.sleep(_LOOK_EVERY / 4)
    return False


def _processor_seconds() -> float:
    """Of all processes below this one that have ended."""
    took = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took.ru_utime + took.ru_stime


def used(folder: Path) -> int:
    """Bytes on disk of all files below a folder."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def _memory(process: int) -> tuple[int, int]:
    """Bytes of a process and all below it, with the pages of mapped files and without."""
    try:
        top = psutil.Process(process)
        found = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0
    looked = [memory_of(one.pid) for one in found]
    return sum(whole for whole, _ in looked), sum(own for _, own in looked)


def memory_of(process: int) -> tuple[int, int]:
    """Bytes of one process, as `_memory` counts them."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    size = {name.rstrip(":"): int(value) * 1024 for name, value, *_ in map(str.split, lines)}
    return size.get("Pss", 0), size.get("Pss_Anon", 0) + size.get("Pss_Shmem", 0)
