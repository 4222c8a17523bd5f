"""Names of CLIP's weights in transformers' `CLIPModel`, for exports and for reading them back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from components.core.system.errors import InputError
from components.encoders.adapter.sidecar import SIDECAR
from components.encoders.adapter.weights import check_numbers, read_safetensors

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


def clip_model_weights(model: nn.Module, name: str) -> dict[str, Tensor]:
    """The tensors of an `open_clip.CLIP` by their names in `CLIPModel`, as views; raises InputError if it lacks one.

    Args:
        name: of the encoder, for the message.
    """
    state = dict(model.state_dict())
    converted = {
        "logit_scale": state.pop("logit_scale").reshape(()),
        "visual_projection.weight": state.pop("visual.proj").T,
    }
    # A mask is not a weight.
    for mask in ("attn_mask", "text.attn_mask"):
        state.pop(mask, None)
    towers = {
        "vision_model": ("visual.", _VISION),
        "text_model": ("text." if "text.ln_final.bias" in state else "", _TEXT),
    }
    for tower, (prefix, names) in towers.items():
        for key in [key for key in state if key.startswith(prefix)]:
            tensor, short = state.pop(key), key.removeprefix(prefix)
            if short == "text_projection":
                converted["text_projection.weight"] = tensor.T
            elif short in names:
                converted[f"{tower}.{names[short]}"] = tensor
            elif short.startswith("transformer.resblocks."):
                number, _, part = short.removeprefix("transformer.resblocks.").partition(".")
                converted |= {f"{tower}.encoder.layers.{number}.{to}": value for to, value in _block(part, tensor)}
            else:
                raise InputError(f"'{name}' has weights '{key}', which CLIPModel does not have")
    return converted


@torch.no_grad()
def load_clip_model(model: nn.Module, path: Path) -> None:
    """Load the safetensors of a `CLIPModel`, as `cliptune export --format huggingface` writes them, into `model`."""
    own, given = clip_model_weights(model, path.parent.name), read_safetensors(path)
    if {key: tensor.shape for key, tensor in own.items()} != {key: tensor.shape for key, tensor in given.items()}:
        raise InputError(f"{path} does not fit the model that {path.parent / SIDECAR} describes: export it again")
    check_numbers(given, own, path)
    for key, tensor in own.items():
        tensor.copy_(given[key])


def _block(part: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """One tensor of a transformer block; the stacked query, key and value of attention become three."""
    stem, _, kind = part.rpartition(".")
    if part.startswith("attn.in_proj_"):
        for name, piece in zip("qkv", tensor.chunk(3), strict=True):
            yield f"self_attn.{name}_proj.{part.removeprefix('attn.in_proj_')}", piece
    elif stem in _BLOCK:
        yield f"{_BLOCK[stem]}.{kind}", tensor
    else:
        raise InputError(f"CLIPModel has no transformer blocks with '{part}': use `--format open_clip`")
