"""Atomic files and folders, and content hashes."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import Any

from safetensors import SafetensorError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# safetensors and NumPy tell of it in words alone.
_FULL_IN_WORDS = re.compile(rf"\(os error ({'|'.join(map(str, _FULL))})\)|requested and \d+ written")


def full_disk(error: BaseException) -> int | None:
    """The error number when a disk or a quota has no room for a file, or the file may not be so long; else None."""
    if not isinstance(error, OSError | SafetensorError):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in _FULL else None
    found = _FULL_IN_WORDS.search(str(error))
    return int(found[1] or errno.ENOSPC) if found else None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Have the error of a full disk name what it has no room for, which libraries do not know."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if (number := full_disk(error)) is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that takes its place when the block succeeds.

    Raises:
        OSError: there is no room for it (`full_disk` knows this one), or it cannot be written.
    """
    with _naming(path), _atomic_file(path) as temporary:
        yield temporary


@contextmanager
def _atomic_file(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _own_path(path)
    temporary.touch(exist_ok=False)
    mode = temporary.stat().st_mode
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        # Some libraries make files that only their owner can read, whatever the umask says.
        temporary.chmod(mode)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes its place when the block succeeds; raises as `atomic_file`."""
    with _naming(path), _atomic_folder(path) as temporary:
        yield temporary


@contextmanager
def _atomic_folder(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _own_path(path)
    temporary.mkdir()
    mode = temporary.stat().st_mode & 0o666
    aside = temporary.with_name(f"{temporary.name}.old")
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file() and not file.is_symlink():
                file.chmod(file.stat().st_mode | mode)
        # Removing takes time, and a process killed meanwhile would leave half of the old folder and nothing new.
        if not _exchanged(temporary, path):
            if path.exists():
                os.replace(path, aside)
            os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two folders take each other's place in one step; False where one is missing or the file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def _own_path(path: Path) -> Path:
    """A temporary path of this process beside `path`; those that dead processes left are removed first.

    They would stay for ever, and DVC takes all that lies in a folder for a part of it.
    """
    # Here, so that the training engine needs nothing that torch and open_clip do not bring (benchmarks/gpu.py).
    import psutil

    host = f".{path.name}.{socket.gethostname()}-"
    for left in path.parent.glob(f"{escape(host)}*"):
        process = left.name.removeprefix(host).partition(".")[0]
        if not process.isdecimal() or psutil.pid_exists(int(process)):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    return path.with_name(f"{host}{os.getpid()}.{token_hex(4)}")


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def image_id(image: bytes) -> str:
    """What a picture is known by, whatever its file's name: the first 16 hexadecimal digits of its bytes' SHA-256."""
    return hashlib.sha256(image).hexdigest()[:16]


def content_hash(*parts: str | bytes) -> str:
    """SHA-256 over length-prefixed parts, so that no two different lists of parts collide."""
    return hash_of_all(parts)


def hash_of_all(parts: Iterable[str | bytes]) -> str:
    """`content_hash` of parts that need not all be in memory."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8") if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.hexdigest()
