"""Checks that weights which open_clip publishes, or a file of them, fit the model's name and its activation."""

from __future__ import annotations

import logging
from pathlib import Path

import open_clip

from components.core.errors import InputError

_ALSO_WITH_GELU = ("laion400m_e31", "laion400m_e32")
"""Trained with QuickGELU, published under GELU models too: ParaCLIP's OpenCLIP-400M row is ViT-B-32:laion400m_e32."""
_PIXELS = {
    "mean": open_clip.OPENAI_DATASET_MEAN,
    "std": open_clip.OPENAI_DATASET_STD,
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}
"""How images are prepared here for every encoder, by the keys of open_clip's table of weights."""
_CHOOSE = "choose weights that see images as CLIP does"
_log = logging.getLogger(__name__)


def check_published(name: str, tag: str, quick_gelu: bool) -> None:
    """Refuse weights that would silently compute something else here than where they were trained.

    Those whose published figures were measured with the other activation are let pass with a warning.

    Args:
        name: an open_clip model.
        tag: of its weights.
        quick_gelu: whether the model's configuration asks for QuickGELU.

    Raises:
        InputError: open_clip has no such weights, or they were trained with another activation or on images that
            were prepared otherwise.
    """
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        raise InputError(f"weights '{tag}' of {name} are unknown: choose one of {', '.join(tags)}")
    facts = open_clip.get_pretrained_cfg(name, tag)
    twin = name.removesuffix("-quickgelu") if quick_gelu else f"{name}-quickgelu"
    # A model without a twin has one activation only, whatever its tag says: roberta-ViT-B-32 is one.
    if bool(facts.get("quick_gelu", False)) != quick_gelu and twin != name:
        told = f"weights '{tag}' were trained with another activation than '{name}' has"
        if tag not in _ALSO_WITH_GELU:
            raise InputError(f"{told}: name the model '{twin}'")
        _log.warning("%s: fine to repeat figures of '%s:%s', else name '%s'", told, name, tag, twin)
    if told := _other_pixels(name, tag):
        raise InputError(f"weights '{tag}' of {name} expect images with {told}, which is not supported: {_CHOOSE}")


def check_file_pixels(name: str, file: Path) -> None:
    """Refuse a file of a model whose published weights all want other pixels; warn where some of them do.

    Raises:
        InputError: all of them do.
    """
    tags = open_clip.list_pretrained_tags_by_model(name)
    other = {tag: told for tag in tags if (told := _other_pixels(name, tag))}
    if not other:
        return
    told = "; ".join(f"'{tag}' expect images with {how}" for tag, how in other.items())
    if len(other) == len(tags):
        raise InputError(f"{file}: weights of {name} ({told}) are not supported: {_CHOOSE}")
    _log.warning("%s gets images as CLIP prepares them, but of the weights of %s %s: use others", file, name, told)


def _other_pixels(name: str, tag: str) -> str:
    """How the images of published weights differ from CLIP's: resized shorter side, centre crop, mean and deviation."""
    facts = open_clip.get_pretrained_cfg(name, tag)
    return " and ".join(f"{key} {facts[key]}" for key, clips in _PIXELS.items() if facts.get(key, clips) != clips)


def warn_of_activation(name: str, file: Path) -> None:
    """Say which activation the weights of a file get where `name` has a twin with the other; no file tells its own."""
    twin = name.removesuffix("-quickgelu") if name.endswith("-quickgelu") else f"{name}-quickgelu"
    if twin not in open_clip.list_models():
        return
    ours, other = ("QuickGELU", "GELU") if name.endswith("-quickgelu") else ("GELU", "QuickGELU")
    _log.warning("%s does not say its activation and gets %s: name '%s' if it learned with %s", file, ours, twin, other)
