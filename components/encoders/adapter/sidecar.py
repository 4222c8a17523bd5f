"""The sidecar `encoder.json` of saved weights: model, tokenizer, method and provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from components.core.tables import formats
from components.core.tables.formats import read_record
from components.encoders.adapter.images import Preparation

WEIGHTS, SIDECAR = "encoder.safetensors", "encoder.json"
METHOD_TENSORS, TEXT_FILES = "method.safetensors", "text"
"""Files of some encoders only: tensors of the method, and the text tower's Hugging Face files."""


class Parity(BaseModel):
    """Largest absolute differences of unit features from open_clip's own, of texts and of pictures."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    texts: float
    images: float


class Sidecar(BaseModel):
    """The metadata that rebuilding an encoder requires, and its origin.

    Attributes:
        preparation: of its image tower's pictures.
        trims_texts: whether padding after a text's end token may be cut off; other text towers read it.
        pooling: the token or tokens that a text's feature comes from, in open_clip's words.
        logit_bias: whether logits have a bias, as those of a base trained with the sigmoid loss.
        parity: largest difference from the features that open_clip computes itself; None for an encoder not of
            open_clip.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    format: int = formats.ENCODER
    name: str
    model: str
    architecture: dict[str, Any]
    quick_gelu: bool
    embed_dim: int
    context_length: int
    preparation: Preparation
    tokenizer: str = "clip-bpe"
    trims_texts: bool = True
    pooling: str = "argmax"
    logit_bias: bool = False
    parity: Parity | None = None
    method: str
    from_base: bool = True
    """Whether training began with all of the base's weights; other encoders cannot be mixed."""
    settings: dict[str, Any] = {}
    data_hashes: dict[str, str] = {}
    git_commit: str = ""
    weights_sha256: str = ""
    method_tensors_sha256: str = ""
    image_tower_sha256: str = ""

    @model_validator(mode="before")
    @classmethod
    def _of_format_1(cls, content: Any) -> Any:
        """Format 1 had the size of pictures, and mean and deviation in `vision_cfg` if they were not CLIP's."""
        if not (isinstance(content, dict) and "image_size" in content and "architecture" in content):
            return content
        vision = dict(content["architecture"].get("vision_cfg", {}))
        statistics = {name: vision.pop(name) for name in ("mean", "std") if name in vision}
        kept = {name: value for name, value in content.items() if name != "image_size"}
        return kept | {
            "format": formats.ENCODER,
            "architecture": content["architecture"] | {"vision_cfg": vision},
            "preparation": {"size": content["image_size"], **statistics},
        }


def read_sidecar(folder: Path) -> Sidecar:
    """Read `encoder.json` of an encoder folder; raises `InputError` if the file is missing or not a sidecar."""
    missing = f"{folder} holds no encoder, run `dvc repro` to make it"
    return read_record(Sidecar, folder / SIDECAR, missing, "run `dvc repro` to make it again", formats.ENCODER)
