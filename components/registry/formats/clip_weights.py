"""Converts open_clip's CLIP to transformers' `CLIPModel`: configuration and weights, or why it cannot be held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import open_clip
from torch import Tensor

from components.core.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.tokens import ClipTokenizer

_SIZES = {"layers", "width", "mlp_ratio"}
_SAME = {
    "vision_cfg": (open_clip.CLIPVisionCfg, _SIZES | {"head_width", "patch_size", "image_size", "patch_dropout"}),
    "text_cfg": (open_clip.CLIPTextCfg, _SIZES | {"heads", "context_length", "vocab_size", "eos_id"}),
}
"""Tower -> its settings and their defaults, and which of them `CLIPModel` can have any value of."""
_BLOCK = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_TEXT = {
    "token_embedding.weight": "embeddings.token_embedding.weight",
    "positional_embedding": "embeddings.position_embedding.weight",
    "ln_final.weight": "final_layer_norm.weight",
    "ln_final.bias": "final_layer_norm.bias",
}
_VISION = {
    "class_embedding": "embeddings.class_embedding",
    "conv1.weight": "embeddings.patch_embedding.weight",
    "positional_embedding": "embeddings.position_embedding.weight",
    "ln_pre.weight": "pre_layrnorm.weight",
    "ln_pre.bias": "pre_layrnorm.bias",
    "ln_post.weight": "post_layernorm.weight",
    "ln_post.bias": "post_layernorm.bias",
}


def refuse(encoder: Encoder) -> None:
    """Let pass what `CLIPModel` can hold.

    Raises:
        InputError: a tower is of another kind; the message names the tower's setting.
    """
    name, config = encoder.sidecar.name, encoder.sidecar.architecture
    where = f"'{name}' cannot be a CLIPModel of transformers"
    fix = "use `--format open_clip`, or serve it with `cliptune serve`"
    if "language_model" in config["text_cfg"]:
        raise InputError(
            f"{where}: its text tower is an adapted language model with a projection of its own: serve it with "
            "`cliptune serve`, or export an encoder with CLIP's own text tower"
        )
    if not isinstance(encoder.tokenizer, ClipTokenizer):
        raise InputError(f"{where}: its tokenizer is not CLIP's: {fix}")
    for tower, (settings, free) in _SAME.items():
        defaults = {field.name: field.default for field in fields(settings)}
        for key, value in config[tower].items():
            if key not in free and value != defaults.get(key):
                raise InputError(f"{where}: its {tower}.{key} is {value}, which that class does not know: {fix}")
    if not all(isinstance(config["vision_cfg"].get(key, 0), int) for key in ("layers", "image_size", "patch_size")):
        raise InputError(f"{where}: its image tower is no square vision transformer: {fix}")


def configuration(encoder: Encoder, start: int, end: int) -> dict[str, Any]:
    """Keyword arguments of `CLIPConfig`, with the ids of the start and end tokens."""
    config = encoder.sidecar.architecture
    vision, text = (_complete(config, tower) for tower in _SAME)
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


def weights(encoder: Encoder) -> dict[str, Tensor]:
    """The encoder's tensors under the names and in the shapes of `CLIPModel`.

    Raises:
        InputError: it has a tensor that `CLIPModel` has no place for.
    """
    state = dict(encoder.model.state_dict())
    converted = {
        "logit_scale": state.pop("logit_scale").reshape(()),
        "visual_projection.weight": state.pop("visual.proj").T,
    }
    # A mask, no weight.
    for name in ("attn_mask", "text.attn_mask"):
        state.pop(name, None)
    towers = {
        "vision_model": ("visual.", _VISION),
        "text_model": ("text." if "text.ln_final.bias" in state else "", _TEXT),
    }
    for tower, (prefix, names) in towers.items():
        for name in [name for name in state if name.startswith(prefix)]:
            tensor, short = state.pop(name), name.removeprefix(prefix)
            if short == "text_projection":
                converted["text_projection.weight"] = tensor.T
            elif short in names:
                converted[f"{tower}.{names[short]}"] = tensor
            elif short.startswith("transformer.resblocks."):
                number, _, part = short.removeprefix("transformer.resblocks.").partition(".")
                converted |= {f"{tower}.encoder.layers.{number}.{key}": value for key, value in _block(part, tensor)}
            else:
                raise InputError(f"'{encoder.sidecar.name}' has weights '{name}', for which CLIPModel has no place")
    return {name: tensor.detach().cpu().contiguous() for name, tensor in converted.items()}


def _block(part: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """One tensor of a transformer block; attention keeps three in one, one below the other."""
    stem, _, kind = part.rpartition(".")
    if part.startswith("attn.in_proj_"):
        for name, piece in zip("qkv", tensor.chunk(3), strict=True):
            yield f"self_attn.{name}_proj.{part.removeprefix('attn.in_proj_')}", piece
    elif stem in _BLOCK:
        yield f"{_BLOCK[stem]}.{kind}", tensor
    else:
        raise InputError(f"transformer blocks with '{part}' are none that CLIPModel has: use `--format open_clip`")


def _complete(config: dict[str, Any], tower: str) -> dict[str, Any]:
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
