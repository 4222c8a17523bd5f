"""A Hugging Face folder: `CLIPModel`, its tokenizer and its image processor; also for vLLM's pooling runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import open_clip
import torch
from PIL import Image

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.tokens import ClipTokenizer
from components.encoders.adapter.weights import clip_model_weights
from components.registry.formats import ExportedVectors, Format

_START, _END = "<|startoftext|>", "<|endoftext|>"
_SIZES = {"layers", "width", "mlp_ratio"}
_SAME = {
    "vision_cfg": (open_clip.CLIPVisionCfg, _SIZES | {"head_width", "patch_size", "image_size", "patch_dropout"}),
    "text_cfg": (open_clip.CLIPTextCfg, _SIZES | {"heads", "context_length", "vocab_size", "eos_id"}),
}
"""Tower -> the class of its settings, and the settings that may have any value in `CLIPModel`."""


def refuse(encoder: Encoder) -> None:
    """Raise InputError, which names the setting, if a tower is of another kind than in a `CLIPModel`."""
    name, config = encoder.sidecar.name, encoder.sidecar.architecture
    where = f"'{name}' cannot be a CLIPModel of transformers"
    fix = "use `--format open_clip`, or serve it with `cliptune serve`"
    if "language_model" in config["text_cfg"]:
        raise InputError(
            f"{where}: its text tower is an adapted language model with a projection of its own: serve it with "
            "`cliptune serve`, or export an encoder with CLIP's own text tower"
        )
    if encoder.sidecar.preparation.resize_mode == "longest":
        raise InputError(f"{where}: it fills the sides of pictures, which that class does not support: {fix}")
    if not isinstance(encoder.tokenizer, ClipTokenizer):
        raise InputError(f"{where}: its tokenizer is not CLIP's: {fix}")
    for tower, (settings, free) in _SAME.items():
        defaults = {field.name: field.default for field in fields(settings)}
        for key, value in config[tower].items():
            if key not in free and value != defaults.get(key):
                raise InputError(f"{where}: its {tower}.{key} is {value}, which that class does not support: {fix}")
    if not all(isinstance(config["vision_cfg"].get(key, 0), int) for key in ("layers", "image_size", "patch_size")):
        raise InputError(f"{where}: its image tower is not a square vision transformer: {fix}")


def _write(encoder: Encoder, folder: Path) -> None:
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    byte_pairs = open_clip.SimpleTokenizer(context_length=encoder.sidecar.context_length)
    start, end = byte_pairs.sot_token_id, byte_pairs.eot_token_id
    model = CLIPModel(CLIPConfig(**_configuration(encoder, start, end)))
    model.load_state_dict(clip_model_weights(encoder.model, encoder.sidecar.name), strict=True)
    model.save_pretrained(folder)
    clip_tokenizer(byte_pairs, encoder.sidecar.context_length).save_pretrained(folder)
    preparation = encoder.sidecar.preparation
    square = {"height": preparation.size, "width": preparation.size}
    squash = preparation.resize_mode == "squash"
    CLIPImageProcessor(
        size=square if squash else {"shortest_edge": preparation.size},
        do_center_crop=not squash,
        crop_size=square,
        resample=Image.Resampling.BILINEAR if preparation.interpolation == "bilinear" else Image.Resampling.BICUBIC,
        image_mean=list(preparation.mean),
        image_std=list(preparation.std),
    ).save_pretrained(folder)


def clip_tokenizer(byte_pairs: open_clip.SimpleTokenizer, context_length: int) -> Any:
    """open_clip's byte pairs with the same ids in transformers' class; only the two special tokens are renamed."""
    from transformers import CLIPTokenizer

    renamed = {byte_pairs.sot_token_id: _START, byte_pairs.eot_token_id: _END}
    vocabulary = {renamed.get(number, token): number for token, number in byte_pairs.encoder.items()}
    return CLIPTokenizer(vocab=vocabulary, merges=list(byte_pairs.bpe_ranks), model_max_length=context_length)


@torch.inference_mode()
def _read(folder: Path, texts: Sequence[str], images: Sequence[Image.Image]) -> ExportedVectors:
    from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer

    model = CLIPModel.from_pretrained(folder).eval()
    tokens = CLIPTokenizer.from_pretrained(folder)(list(texts), padding=True, truncation=True, return_tensors="pt")
    pixels = CLIPImageProcessor.from_pretrained(folder)(list(images), return_tensors="pt")
    output = model(**tokens, **pixels)
    return ExportedVectors(output.text_embeds.numpy(), output.image_embeds.numpy())


def _configuration(encoder: Encoder, start: int, end: int) -> dict[str, Any]:
    """Keyword arguments of `CLIPConfig`; `start` and `end` are the ids of the special tokens."""
    config = encoder.sidecar.architecture
    vision, text = (_with_defaults(config, tower) for tower in _SAME)
    shared = {
        "hidden_act": "quick_gelu" if encoder.sidecar.quick_gelu else "gelu",
        "projection_dim": config["embed_dim"],
    }
    return {
        "projection_dim": config["embed_dim"],
        "text_config": shared
        | _sizes(text, text["heads"])
        | {
            "vocab_size": text["vocab_size"],
            "max_position_embeddings": text["context_length"],
            "bos_token_id": start,
            "eos_token_id": end,
            "pad_token_id": end,
        },
        "vision_config": shared
        | _sizes(vision, vision["width"] // vision["head_width"])
        | {"image_size": vision["image_size"], "patch_size": vision["patch_size"]},
    }


def _with_defaults(config: dict[str, Any], tower: str) -> dict[str, Any]:
    settings, _ = _SAME[tower]
    defaults: dict[str, Any] = {field.name: field.default for field in fields(settings)}
    return {**defaults, **config[tower]}


def _sizes(tower: dict[str, Any], heads: int) -> dict[str, Any]:
    return {
        "hidden_size": tower["width"],
        "intermediate_size": int(tower["width"] * tower["mlp_ratio"]),
        "num_hidden_layers": tower["layers"],
        "num_attention_heads": heads,
    }


FORMAT = Format(
    name="huggingface",
    refuse=refuse,
    write=_write,
    read=_read,
    usage=(
        "from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer\n"
        'model = CLIPModel.from_pretrained("{folder}")\n'
        'tokenizer = CLIPTokenizer.from_pretrained("{folder}")\n'
        'processor = CLIPImageProcessor.from_pretrained("{folder}")'
    ),
    notes=(
        "open_clip's tokenizer also straightens curly quotes, decodes HTML entities and repairs broken Unicode. This "
        "tokenizer does not: clean such texts with ftfy and `html.unescape` first. Image processors of transformers "
        "resize with other arithmetic than Pillow.",
    ),
)


def _refuse_vllm(encoder: Encoder) -> None:
    """Raise InputError as format `huggingface`, and for vectors that are shorter than the text tower is wide."""
    refuse(encoder)
    width, dim = encoder.sidecar.architecture["text_cfg"]["width"], encoder.sidecar.embed_dim
    if dim < width:
        raise InputError(
            f"'{encoder.sidecar.name}' has vectors of {dim} numbers and a text tower {width} wide, which vLLM does not "
            "serve: use `--format huggingface`, or serve it with `cliptune serve`"
        )


VLLM = replace(
    FORMAT,
    name="vllm",
    refuse=_refuse_vllm,
    usage=(
        "# vllm serve {folder} --runner pooling --served-model-name text-encoder\n"
        "from openai import OpenAI\n"
        'client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="-")\n'
        'vector = client.embeddings.create(model="text-encoder", input="a child on a couch").data[0].embedding'
    ),
)
