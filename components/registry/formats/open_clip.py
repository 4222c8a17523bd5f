"""A folder that open_clip loads as `local-dir:<folder>`: configuration, weights, tokenizer files if any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import open_clip
import torch
from PIL import Image
from safetensors.torch import save_file

from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import CONFIG, LOCAL, model_config
from components.registry.formats import ExportedVectors, Format


def _refuse(encoder: Encoder) -> None:
    if "language_model" in encoder.sidecar.architecture["text_cfg"]:
        raise InputError(
            f"'{encoder.sidecar.name}' has an adapted language model as text tower, which open_clip does not support: "
            "serve it with `cliptune serve`, or export an encoder with CLIP's own text tower"
        )


def _write(encoder: Encoder, folder: Path) -> None:
    model, preparation = _with_own_weights(encoder.sidecar.architecture), encoder.sidecar.preparation.model_dump()
    write_json(folder / CONFIG, {"model_cfg": model, "preprocess_cfg": preparation})
    tensors = {name: tensor.contiguous() for name, tensor in encoder.model.state_dict().items()}
    save_file(tensors, folder / "open_clip_model.safetensors")
    encoder.save_text_files(folder)


def _with_own_weights(architecture: dict[str, Any]) -> dict[str, Any]:
    """The configuration in open_clip's keys, without downloads: all weights are in the folder."""
    changed = dict(architecture)
    if "timm_model_name" in architecture["vision_cfg"]:
        changed["vision_cfg"] = architecture["vision_cfg"] | {"timm_model_pretrained": False}
    if "hf_model_name" in architecture["text_cfg"]:
        changed["text_cfg"] = architecture["text_cfg"] | {"hf_model_pretrained": False}
    return changed


@torch.inference_mode()
def _read(folder: Path, texts: Sequence[str], images: Sequence[Image.Image]) -> ExportedVectors:
    text = model_config(f"{LOCAL}{folder}")["text_cfg"]
    # open_clip looks for a language model's configuration by its name, and not in the folder.
    own = {"text_cfg": text} if "hf_model_name" in text else {}
    model, _, prepare = open_clip.create_model_and_transforms(f"{LOCAL}{folder}", **own)
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    model.eval()
    pixels = torch.stack([prepare(image) for image in images])
    return ExportedVectors(
        model.encode_text(tokenizer(list(texts)), normalize=True).numpy(),
        model.encode_image(pixels, normalize=True).numpy(),
    )


FORMAT = Format(
    name="open_clip",
    refuse=_refuse,
    write=_write,
    read=_read,
    usage=(
        "import open_clip\n"
        'model, _, preprocess = open_clip.create_model_and_transforms("local-dir:{folder}")\n'
        'tokenizer = open_clip.get_tokenizer("local-dir:{folder}")'
    ),
    notes=(
        "If `text_cfg` of open_clip_config.json has a `hf_model_name`, open_clip looks for it on Hugging Face's hub. "
        "This folder has its files: pass `text_cfg=text_cfg | {'hf_model_name': folder}` to "
        "`create_model_and_transforms`.",
    ),
)
