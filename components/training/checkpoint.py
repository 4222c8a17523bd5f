"""Resume checkpoints: safetensors and JSON, whole or not at all, the newest sound one found by itself."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from components.files import atomic_folder, file_hash, write_json

_TENSORS, _FACTS = "state.safetensors", "state.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run; `folder` must be this run's alone (see `fingerprint`)."""

    folder: Path
    keep: int = 2

    def save(self, step: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Write everything that the next step depends on."""
        with atomic_folder(self.folder / f"step-{step:08d}") as temporary:
            save_file(_tensors(model, optimiser), temporary / _TENSORS)
            write_json(temporary / _FACTS, {"step": step, "sha256": file_hash(temporary / _TENSORS)})
        for old in self._all()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)

    def resume(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> int:
        """Load the newest sound checkpoint into `model` and `optimiser`; returns the steps done, 0 without one."""
        for folder in reversed(self._all()):
            try:
                facts: dict[str, Any] = json.loads((folder / _FACTS).read_text("utf-8"))
                if facts["sha256"] != file_hash(folder / _TENSORS):
                    raise ValueError("checksum differs")
                _restore(load_file(folder / _TENSORS), model, optimiser)
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                _log.warning("checkpoint %s is broken (%s); trying the one before", folder, error)
                continue
            return int(facts["step"])
        return 0

    def clear(self) -> None:
        """Remove them all; a finished run needs none."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []


def _tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {f"model.{name}": tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    for index, state in optimiser.state_dict()["state"].items():
        for key, value in state.items():
            tensors[f"optimiser.{index}.{key}"] = torch.as_tensor(value).detach().cpu().contiguous()
    tensors["rng"] = torch.get_rng_state()
    return tensors


def _restore(tensors: dict[str, Tensor], model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    prefix = "model."
    model.load_state_dict({name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)})
    state = optimiser.state_dict()
    state["state"] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            state["state"].setdefault(int(index), {})[key] = value
    optimiser.load_state_dict(state)
    torch.set_rng_state(tensors["rng"])
