"""Reads weights from safetensors and from PyTorch's pickled files, and loads them into a model.

Safetensors may also be those of transformers' `CLIPModel`, as `cliptune export --format huggingface` writes them.
"""

from __future__ import annotations

import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from components.core.system.errors import InputError
from components.encoders.adapter.sidecar import SIDECAR, WEIGHTS, Sidecar

EXPORTED = {
    "open_clip": "open_clip_model.safetensors",
    "huggingface": "model.safetensors",
    "sentence_transformers": "model.safetensors",
}
"""Formats of `cliptune export` that hold both towers, and their file of weights."""
_PICKLED = (".pt", ".pth", ".bin", ".ckpt")


def weights_file(folder: Path, sidecar: Sidecar) -> Path:
    """The weights in a folder that `Encoder.save` or `cliptune export` wrote."""
    file = next((folder / name for name in (WEIGHTS, *EXPORTED.values()) if (folder / name).is_file()), None)
    # The text tower of a language model is exported to sentence-transformers without the image tower.
    if file and (file.name == WEIGHTS or "language_model" not in sidecar.architecture["text_cfg"]):
        return file
    if file or any(folder.glob("*.onnx")):
        raise InputError(
            f"{folder} is an export of only the text tower: give the encoder that was exported, or an export with "
            f"--format {' or '.join(EXPORTED)} that holds both towers"
        )
    raise InputError(f"{folder / WEIGHTS} is missing: run `dvc repro` to make it")


def load_weights(model: Any, path: Path, *, in_order: bool = False) -> None:
    """Load a weights file into `model`; every tensor must match."""
    state = _fitted(read_safetensors(path) if path.suffix == ".safetensors" else _read_pickled(path), model)
    if in_order and len(state) == len(model.state_dict()):
        state = dict(zip(model.state_dict(), state.values(), strict=True))
    check_numbers(state, model.state_dict(), path)
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} does not fit the model ({reason}): name the model of this file") from None


def check_numbers(state: Mapping[str, Tensor], known: Mapping[str, Tensor], path: Path) -> None:
    """Refuse quantised integers, which loading would cast to a model's floats, and numbers that are not finite."""
    for name, value in state.items():
        if name not in known or not known[name].is_floating_point():
            continue
        if not value.is_floating_point():
            kind = str(value.dtype).removeprefix("torch.")
            raise InputError(f"{path}: '{name}' holds {kind} numbers: convert the weights to float32 or float16")
        # The extremes are enough, and need no mask of the tensor's size.
        if value.numel() and not torch.isfinite(torch.stack(torch.aminmax(value.float()))).all():
            raise InputError(f"{path}: '{name}' holds numbers that are not finite: fetch the file or train again")


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name; raises `InputError` if the file is missing or broken."""
    _must_exist(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is a broken checkpoint ({error}): fetch or make it again") from None


def _read_pickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of `torch.save`; the unpickler builds only tensors and plain data."""
    _must_exist(path)
    if path.suffix not in _PICKLED:
        raise InputError(f"{path}: only .safetensors, {', '.join(_PICKLED)} weights are read: convert the file first")
    try:
        # Training scripts store their arguments in a Namespace, which holds values and runs no code.
        with torch.serialization.safe_globals([Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except UnpicklingError:
        raise InputError(
            f"{path} holds more than weights, and reading it could run code: convert it to .safetensors on an isolated "
            "machine"
        ) from None
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is a broken checkpoint, or not a plain one ({reason}): fetch or convert it") from None
    return _unwrapped(content, path)


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path} is missing: name an existing checkpoint or run `dvc repro`")


def _unwrapped(content: Any, path: Path) -> dict[str, Tensor]:
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    named = content.items() if isinstance(content, dict) else ()
    tensors = {str(name).removeprefix("module."): value for name, value in named if torch.is_tensor(value)}
    if not tensors:
        raise InputError(f"{path} holds no weights: name a file with a state dict")
    # Entries of OpenAI's files that are not weights.
    settings = ("input_resolution", "context_length", "vocab_size")
    return {name: value for name, value in tensors.items() if name not in settings}


def _fitted(state: dict[str, Tensor], model: Any) -> dict[str, Tensor]:
    """The weights with the names and shapes of the installed open_clip."""
    from open_clip.convert import convert_state_dict
    from open_clip.model import CustomTextCLIP, convert_to_custom_text_state_dict

    state = convert_state_dict(model, state)
    if isinstance(model, CustomTextCLIP):
        state = convert_to_custom_text_state_dict(state)
        # The decoder of a CoCa model writes captions, which no encoder needs.
        state = {name: value for name, value in state.items() if not name.startswith("text_decoder.")}
    known = model.state_dict()
    # Older versions of transformers saved this buffer, which is not a weight.
    state = {name: value for name, value in state.items() if name in known or not name.endswith("position_ids")}
    for name in ("logit_scale", "logit_bias"):
        if name in state and name in known:
            state[name] = state[name].reshape(known[name].shape)
    return state


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
    """Load the safetensors of a `CLIPModel` into `model`."""
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
