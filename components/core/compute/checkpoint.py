"""Resume checkpoints of training: safetensors and JSON, written atomically; the newest intact is used."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from components.core.system.errors import InputError
from components.core.tables.files import atomic_folder, content_hash, file_hash, write_json
from components.core.tables.formats import CHECKPOINT, refuse_newer

_TENSORS, _FACTS = "state.safetensors", "state.json"
_LOCK, _HOLDER = "lock", "process"
_log = logging.getLogger(__name__)

Facts = dict[str, Any]
"""The contents of a checkpoint besides tensors, as JSON; always with `step`."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run; no other run may use `folder` (see `fingerprint`).

    Attributes:
        keep: number of checkpoints to keep, the newest, besides the best.
        code: hash of the training code, see `code_hash`; a run that continues from other code says so.
    """

    folder: Path
    keep: int = 2
    code: str = ""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against other processes; the system releases the lock when this process ends."""
        lock, holder = FileLock(self.folder / _LOCK), self.folder / _HOLDER
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=False)
            holder.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        except Timeout:
            other = holder.read_text("utf-8") if holder.is_file() else "another process"
            raise InputError(f"{self.folder} is in use by {other}: wait for it or stop it") from None
        except OSError as error:
            raise InputError(f"{self.folder} cannot be written ({error}): make it writable or free space") from error
        try:
            yield
        finally:
            for file in (holder, self.folder / _LOCK):
                file.unlink(missing_ok=True)
            lock.release()

    def save(self, facts: Facts, tensors: Mapping[str, Tensor]) -> None:
        """Write the state for the next step."""
        newest = self.folder / f"step-{facts['step']:08d}"
        self._write(newest, facts, tensors)
        # A later checkpoint was broken, else the run would have resumed from it; it must not count as kept.
        later = [folder for folder in self._all() if folder > newest]
        for old in [*later, *self._all()[: -self.keep - len(later)]]:
            shutil.rmtree(old, ignore_errors=True)

    def save_best(self, facts: Facts, tensors: Mapping[str, Tensor]) -> None:
        """Replace the best weights."""
        self._write(self.folder / "best", facts, tensors)

    def resume(self, restore: Callable[[Facts, dict[str, Tensor]], None]) -> Facts | None:
        """Pass the newest intact checkpoint to `restore` and return its facts; None without one.

        Broken checkpoints are skipped with a warning, and one of a newer version is refused.
        """
        if not self._all() and (others := self._others()):
            said = "%s has checkpoints of other settings, data or code, which stay: to continue them, rename it %s"
            _log.warning(said, others[-1], self.folder)
        for folder in reversed(self._all()):
            if (checkpoint := _read(folder)) is not None:
                refuse_newer(f"checkpoint {folder}", checkpoint[0].pop("format", 1), CHECKPOINT)
                if other := checkpoint[0].pop("code", None) != self.code:
                    said = "checkpoint %s was made by other code, and the run continues: to start over, move %s away"
                    _log.warning(said, folder, self.folder)
                try:
                    restore(*checkpoint)
                except (KeyError, ValueError, RuntimeError) as error:
                    if not other:
                        raise
                    fault = f"checkpoint {folder} was made by other code and does not fit this one ({error})"
                    raise InputError(f"{fault}: move {self.folder} away to start over") from error
                return checkpoint[0]
        return None

    def best(self) -> dict[str, Tensor] | None:
        """The best weights; None if they are missing or broken."""
        checkpoint = _read(self.folder / "best") if (self.folder / "best").is_dir() else None
        return None if checkpoint is None else checkpoint[1]

    def kept(self) -> dict[int, Path]:
        """Step -> the folder of its checkpoint, without the best."""
        return {int(folder.name.removeprefix("step-")): folder for folder in self._all()}

    def clear(self) -> None:
        """Remove all checkpoints, after a finished run."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, folder: Path, facts: Facts, tensors: Mapping[str, Tensor]) -> None:
        # The folder has one writer, so temporary folders are those of killed processes.
        for left in self.folder.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)
        on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        facts = {**facts, "code": self.code, "format": CHECKPOINT}
        try:
            with atomic_folder(folder) as temporary:
                save_file(on_cpu, temporary / _TENSORS)
                write_json(temporary / _FACTS, {**facts, "sha256": _checksum(facts, temporary / _TENSORS)})
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"{folder} cannot be written ({error}): free space on that disk or make it writable, "
                "then run the same command again; the previous checkpoint is kept"
            ) from error

    def _others(self) -> list[Path]:
        """Folders with checkpoints of the same entry, whose name ends with another fingerprint; the newest last."""
        entry = self.folder.name.rpartition("-")[0]
        found = (
            {file.parent.parent for file in self.folder.parent.glob(f"{entry}-*/step-*/{_FACTS}")} if entry else set()
        )
        return sorted(found - {self.folder}, key=lambda folder: folder.stat().st_mtime)

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []


def _read(folder: Path) -> tuple[Facts, dict[str, Tensor]] | None:
    try:
        facts: Facts = json.loads((folder / _FACTS).read_text("utf-8"))
        if facts.pop("sha256") != _checksum(facts, folder / _TENSORS):
            raise ValueError("checksum differs")
        return facts, load_file(folder / _TENSORS)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        _log.warning("checkpoint %s is broken (%s); trying the one before", folder, error)
        return None


def _checksum(facts: Facts, tensors: Path) -> str:
    """The checksum of tensors and facts: a damaged step or cursor is as bad as a damaged weight."""
    return content_hash(json.dumps(facts, sort_keys=True), file_hash(tensors))


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as flat tensors."""
    return {
        f"optimiser.{index}.{key}": torch.as_tensor(value)
        for index, state in optimiser.state_dict()["state"].items()
        for key, value in state.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the result of `optimiser_tensors`."""
    state = optimiser.state_dict()
    state["state"] = {}
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            parameter = parameters[int(index)]
            # A fused update requires the parameter's memory format, and tensors of a file are never channels-last.
            alike = torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value
            state["state"].setdefault(int(index), {})[key] = alike
    optimiser.load_state_dict(state)
