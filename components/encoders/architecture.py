"""open_clip model configurations: the published ones and those in `models/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
from open_clip.transformer import QuickGELU
from torch import nn

from components.errors import InputError

_OWN_MODELS = Path(__file__).parent / "models"


def model_config(name: str) -> dict[str, Any]:
    """The open_clip configuration called `name`.

    Raises:
        InputError: neither open_clip nor `components/encoders/models/` has it.
    """
    own = _OWN_MODELS / f"{name}.json"
    if own.is_file():
        config: dict[str, Any] = json.loads(own.read_text("utf-8"))
        return config
    known = open_clip.get_model_config(name)
    if known is None:
        raise InputError(
            f"params.yaml: base.model '{name}' is unknown: name an open_clip model or add "
            f"components/encoders/models/{name}.json"
        )
    return dict(known)


def build(config: dict[str, Any]) -> nn.Module:
    """A model of this configuration with random weights, in float32."""
    model: nn.Module = open_clip.CLIP(**config)
    return model


def has_quick_gelu(config: dict[str, Any]) -> bool:
    """Whether the configuration asks for QuickGELU instead of GELU."""
    return bool(config.get("quick_gelu", False))


def uses_quick_gelu(model: nn.Module) -> bool:
    """Whether the built model's towers really contain QuickGELU."""
    return any(isinstance(module, QuickGELU) for module in model.modules())


def pretrained_quick_gelu(name: str, tag: str) -> bool:
    """Whether the weights that open_clip publishes under `name` and `tag` were trained with QuickGELU.

    Raises:
        InputError: open_clip has no such weights.
    """
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        raise InputError(f"params.yaml: base.pretrained '{tag}' is unknown for {name}: choose one of {', '.join(tags)}")
    return bool(open_clip.get_pretrained_cfg(name, tag).get("quick_gelu", False))
