"""The sidecar `encoder.json` of saved weights: model, tokenizer, method and provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from components.core.tables.record_files import read_record

WEIGHTS, SIDECAR = "encoder.safetensors", "encoder.json"
METHOD_TENSORS, TEXT_FILES = "method.safetensors", "text"
"""Files of some encoders only: tensors of the method, and the text tower's Hugging Face files."""


class Sidecar(BaseModel):
    """The metadata that rebuilding an encoder requires, and its origin."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    format: int = 1
    name: str
    model: str
    architecture: dict[str, Any]
    quick_gelu: bool
    embed_dim: int
    context_length: int
    image_size: int
    tokenizer: str = "clip-bpe"
    method: str
    from_base: bool = True
    """Whether training began with all of the base's weights; other encoders cannot be mixed."""
    settings: dict[str, Any] = {}
    data_hashes: dict[str, str] = {}
    git_commit: str = ""
    weights_sha256: str = ""
    method_tensors_sha256: str = ""
    image_tower_sha256: str = ""


def read_sidecar(folder: Path) -> Sidecar:
    """Read `encoder.json` of an encoder folder; raises `InputError` if the file is missing or not a sidecar."""
    missing = f"{folder} holds no encoder, run `dvc repro` to make it"
    return read_record(Sidecar, folder / SIDECAR, missing, "run `dvc repro` to make it again")
