"""What open_clip knows about the weights it publishes, and what of it must fit this project."""

from __future__ import annotations

import open_clip

from components.errors import InputError


def check_published(name: str, tag: str, quick_gelu: bool) -> None:
    """Refuse weights that would silently compute something else here than where they were trained.

    Args:
        name: an open_clip model.
        tag: of its weights.
        quick_gelu: whether the model's configuration asks for QuickGELU.

    Raises:
        InputError: open_clip has no such weights, or they were trained with another activation or on images that
            were normalised with other numbers.
    """
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        raise InputError(f"weights '{tag}' of {name} are unknown: choose one of {', '.join(tags)}")
    facts = open_clip.get_pretrained_cfg(name, tag)
    twin = name.removesuffix("-quickgelu") if quick_gelu else f"{name}-quickgelu"
    # A model without a twin has one activation only, whatever its tag says: roberta-ViT-B-32 is one.
    if bool(facts.get("quick_gelu", False)) != quick_gelu and twin != name:
        raise InputError(
            f"weights '{tag}' were trained with another activation than '{name}' has: name the model '{twin}'"
        )
    if facts.get("mean") not in (None, open_clip.OPENAI_DATASET_MEAN):
        raise InputError(
            f"weights '{tag}' of {name} expect images with mean {facts['mean']}, which is not supported: "
            "choose weights with CLIP's own image normalisation"
        )
