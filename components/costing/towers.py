"""How large an encoder's towers are and how fast this machine runs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from components.core.compute.hardware import pick_autocast, pick_device
from components.core.settings import Settings
from components.encoders.adapter.architecture import model_config, plain_name
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import normalise
from components.encoders.adapter.text_tower import encode_tokens
from components.methods.contract.method import Method
from components.methods.contract.optimisation import Optimisation

_TEXTS, _IMAGES = 64, 16
_LEAST_S = 0.5
_CAPTION = "a photo of {} small dogs that play on the grass behind a red house"


@dataclass(frozen=True)
class Speed:
    """Towers on one machine.

    Attributes:
        texts: that go forward and backward through the text tower in a second.
        images: that go forward through the image tower in a second; backward takes twice as long again.
        parameters: of all towers.
        trained: those of them that train.
        dim: of the embeddings.
    """

    texts: float
    images: float
    parameters: int
    trained: int
    dim: int


def base_encoder(settings: Settings) -> Encoder:
    """An encoder of the base's architecture with random weights.

    Raises:
        InputError: the model is unknown.
    """
    model = settings.base.model
    return Encoder.create("base", plain_name(model), model_config(model), "clip")


def method_encoder(settings: Settings, method: Method, hyper: Optimisation) -> Encoder:
    """What a method starts from, where the base has random weights; what it does not train is frozen.

    Raises:
        InputError: the method's own text tower is not there.
    """
    encoder = method.start(base_encoder(settings), hyper)
    method.freeze(encoder.model, hyper)
    return encoder


def time_towers(encoder: Encoder, settings: Settings, *, images: bool) -> Speed:
    """Run each tower for half a second and more, as training and embedding would.

    Args:
        encoder: whose parameters that train want a gradient.
        settings: the device and the precision are its `train` block's.
        images: whether the image tower is timed too; else its speed is 0.
    """
    device = pick_device(settings.train.device)
    model, autocast = encoder.model.to(device), pick_autocast(settings.train.precision, device)
    found = encoder.tokenizer([_CAPTION.format(number) for number in range(_TEXTS)])
    tokens = torch.from_numpy(np.asarray(found, dtype=np.int64)).to(device)
    size = encoder.sidecar.image_size
    pixels = normalise(torch.zeros(_IMAGES, 3, size, size, dtype=torch.uint8)).to(device)

    def text_step() -> None:
        with torch.autocast(device.split(":")[0], dtype=autocast, enabled=autocast is not None):
            features = encode_tokens(model, tokens)
        if features.requires_grad:
            torch.autograd.backward([features.float().sum()])

    def image_step() -> None:
        with torch.no_grad():
            model.encode_image(pixels)

    return Speed(
        texts=_TEXTS / _seconds(text_step, device),
        images=_IMAGES / _seconds(image_step, device) if images else 0.0,
        parameters=_count(model),
        trained=sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        dim=encoder.sidecar.embed_dim,
    )


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _seconds(step: Callable[[], None], device: str) -> float:
    """The mean time of a step after the first, which also builds kernels."""
    step()
    steps, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < _LEAST_S or steps == 0:
        step()
        steps += 1
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
    return passed / steps
