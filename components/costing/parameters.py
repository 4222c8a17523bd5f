"""Numbers of parameters of models that are not loaded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from components.core.system.errors import InputError
from components.encoders.adapter.language_tower import folder_of, from_config
from components.methods.contract.method import Optimisation
from components.methods.joint import JointSettings

SMOLLM2 = 134_515_008
"""Parameters of SmolLM2-135M, with the table of words, which it also predicts from."""


def parts_of(hyper: Optimisation) -> list[Any]:
    """The hyper-parameters of a method's parts; its own if it has none."""
    return [part.hyper for part in hyper.members.values()] if isinstance(hyper, JointSettings) else [hyper]


def size_of(language_model: str | None, unknown: int, without: Sequence[str] = ()) -> int:
    """The parameters of a language model's folder or name; `unknown` without one, or if it has not been fetched."""
    with suppress(OSError, InputError), torch.device("meta"):
        return unknown if language_model is None else count(from_config(folder_of(language_model)), without)
    return unknown


def count(model: nn.Module, without: Sequence[str] = ()) -> int:
    """The number of parameters, without those whose names have one of these parts."""
    named = model.named_parameters()
    return sum(weights.numel() for name, weights in named if not any(part in name for part in without))
