"""Removes entries of dead processes from DVC's lock file `.dvc/tmp/rwlock`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import zc.lockfile  # type: ignore[import-untyped]

from components.core.errors import InputError
from components.core.files import write_json
from components.sweeping.finding import Finding

_PLACE = "DVC"
FOLDER = Path(".dvc/tmp")
TRIES = 50
"""How often DVC's lock on the file is asked for, five times a second."""


def sweep_locks(dry_run: bool, folder: Path = FOLDER) -> list[Finding]:
    """Take out the locks of processes that are dead, or are no DVC at all because the number is another's by now.

    DVC passes over dead processes by itself, but waits for another process of the same number, and stops at a file
    that a killed one left half written. That file is removed when no DVC works in the checkout.

    Raises:
        InputError: a DVC process holds the file all the time.
    """
    path = folder / "rwlock"
    if not path.is_file():
        return []
    with _guard(folder / "rwlock.lock"):
        try:
            held = json.loads(path.read_text("utf-8"))
            findings = [*_dead_writers(held), *_dead_readers(held)]
        except (ValueError, KeyError, TypeError, AttributeError):
            return [_remove_damaged(path, folder, dry_run)]
        if findings and not dry_run:
            write_json(path, held)
    return findings


def _dead_writers(held: dict[str, Any]) -> Iterator[Finding]:
    for path, info in list(held.get("write", {}).items()):
        if info and (reason := _why_dead(info)):
            del held["write"][path]
            yield Finding(_PLACE, f"write lock on {path}", reason, "taken out of .dvc/tmp/rwlock")


def _dead_readers(held: dict[str, Any]) -> Iterator[Finding]:
    for path, infos in list(held.get("read", {}).items()):
        alive = []
        for info in infos:
            if reason := _why_dead(info):
                yield Finding(_PLACE, f"read lock on {path}", reason, "taken out of .dvc/tmp/rwlock")
            else:
                alive.append(info)
        if alive:
            held["read"][path] = alive
        else:
            del held["read"][path]


def _why_dead(info: dict[str, Any]) -> str:
    """Why the holder of a lock cannot be at work, empty when it can."""
    pid = int(info["pid"])
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return f"process {pid} has ended"
        return "" if _is_dvc(process) else f"process {pid} is no DVC by now"
    except psutil.NoSuchProcess:
        return f"process {pid} is dead"
    except psutil.AccessDenied:
        return ""


def _is_dvc(process: psutil.Process) -> bool:
    return any(Path(part).name in ("dvc", "dvc.exe") for part in process.cmdline())


def _remove_damaged(path: Path, folder: Path, dry_run: bool) -> Finding:
    root = folder.resolve().parent.parent
    at_work = [process.pid for process in psutil.process_iter() if _works_in(process, root)]
    done = "removed"
    if at_work:
        done = f"left: DVC works here (process {at_work[0]}); sweep again when it has ended"
    elif not dry_run:
        path.unlink()
    return Finding(_PLACE, str(path), "half written by a process that was killed", done)


def _works_in(process: psutil.Process, root: Path) -> bool:
    try:
        return _is_dvc(process) and Path(process.cwd()).is_relative_to(root)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


@contextmanager
def _guard(path: Path) -> Iterator[None]:
    """DVC's own lock on the file."""
    lock = _acquire(path)
    try:
        yield
    finally:
        lock.close()


def _acquire(path: Path) -> Any:
    for _ in range(TRIES):
        try:
            return zc.lockfile.LockFile(str(path))
        except zc.lockfile.LockError:
            time.sleep(0.2)
    raise InputError(f"{path} is held by a DVC process all the time: see `lsof {path}`")
