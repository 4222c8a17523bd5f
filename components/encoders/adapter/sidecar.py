"""The sidecar: `encoder.json` beside saved weights, with model, tokenizer, method and provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from components.core.tables.record_files import read_record

WEIGHTS, SIDECAR = "encoder.safetensors", "encoder.json"
METHOD_TENSORS, TEXT_FILES = "method.safetensors", "text"
"""What only some encoders have: tensors of their method, and their text side's Hugging Face files."""


class Sidecar(BaseModel):
    """Everything needed to rebuild an encoder and to tell where it came from."""

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
    """Whether training began with all of the base's weights; a tower that began with others cannot be mixed with it."""
    settings: dict[str, Any] = {}
    data_hashes: dict[str, str] = {}
    git_commit: str = ""
    weights_sha256: str = ""
    method_tensors_sha256: str = ""
    image_tower_sha256: str = ""


def read_sidecar(folder: Path) -> Sidecar:
    """Read `encoder.json` of an encoder folder.

    Raises:
        InputError: the file is missing or not a sidecar.
    """
    missing = f"{folder} holds no encoder, run `dvc repro` to make it"
    return read_record(Sidecar, folder / SIDECAR, missing, "run `dvc repro` to make it again")
