"""Replaces the text tower of a base encoder: by a language model, another encoder's tower, or random weights."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.core.system.errors import InputError
from components.encoders.adapter.architecture import build, has_quick_gelu
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.language_tower import (
    PACKAGED,
    LanguageClip,
    LanguageTower,
    Placement,
    Strategy,
    load_pretrained,
    packaged_model,
)
from components.encoders.adapter.tokens import HuggingFaceTokenizer, Tokenizer


def with_language_tower(
    base: Encoder,
    language_model: str | None,
    strategy: Strategy,
    alignment_layers: int = 0,
    adapter_norm: bool = False,
    adapter_placement: Placement = "layers",
) -> Encoder:
    """The base encoder with a language model as text tower; all other parts of the text side and logit scale are new.

    A base with a logit bias gets a new one.

    `language_model` is a Hugging Face folder or name; None is all-MiniLM-L6-v2 from its package.
    """
    source = language_model or str(packaged_model())
    added = alignment_layers if strategy == "alignment" else 0
    language = load_pretrained(source, added)
    # RoBERTa and similar models count positions from two, after the id of the padding.
    positions = language.config.max_position_embeddings - 2
    tokenizer = HuggingFaceTokenizer(source, min(base.sidecar.context_length, positions))
    if tokenizer.pad_id != language.config.pad_token_id:
        raise InputError(
            f"the tokenizer at '{source}' pads with {tokenizer.pad_id}, the model with "
            f"{language.config.pad_token_id}: make config.json and the tokenizer agree"
        )
    old = base.sidecar.architecture
    config: dict[str, Any] = {
        **_image_side(old),
        "text_cfg": {
            "context_length": tokenizer.context_length,
            "language_model": Path(language_model).name if language_model else PACKAGED,
            "strategy": strategy,
            "alignment_layers": added,
            "adapter_norm": adapter_norm,
            "adapter_placement": adapter_placement,
        },
    }
    model = LanguageClip(base.model.visual, LanguageTower(language, config), config.get("init_logit_bias"))
    return _with_text_side(base, model, tokenizer, config)


def with_text_tower_of(base: Encoder, other: Encoder) -> Encoder:
    """The base encoder with the text tower of another one, whose projection into the base's space is new."""
    old, new = base.sidecar.architecture, other.sidecar.architecture
    theirs = getattr(other.model, "text", other.model)
    if not hasattr(theirs, "text_projection"):
        raise InputError(
            f"the text tower of '{other.sidecar.name}' is a language model: take an encoder of open_clip's"
        )
    if has_quick_gelu(old) != has_quick_gelu(new):
        raise InputError(
            f"only one of the base and '{other.sidecar.name}' has QuickGELU: an encoder has one activation"
        )
    config = {
        **_image_side(old),
        "custom_text": True,
        "text_cfg": new["text_cfg"] | {"proj_bias": True},
    }
    model = build(config)
    kept = {name: part for name, part in theirs.state_dict().items() if name in model.text.state_dict()}
    model.text.load_state_dict(
        {name: part for name, part in kept.items() if "text_projection" not in name}, strict=False
    )
    model.visual, model.logit_scale = base.model.visual, base.model.logit_scale
    model.logit_bias = getattr(base.model, "logit_bias", None)
    return _with_text_side(base, model, other.tokenizer, config)


def _with_text_side(base: Encoder, model: Any, tokenizer: Tokenizer, config: dict[str, Any]) -> Encoder:
    """The base encoder with a model that differs in its text side."""
    same = base.sidecar
    encoder = Encoder.of(model, tokenizer, same.name, same.model, config, same.method, same.preparation.differences())
    # The image tower is unchanged, so its embeddings remain valid.
    encoder.sidecar = encoder.sidecar.model_copy(update={"image_tower_sha256": same.image_tower_sha256})
    return encoder


def _image_side(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a configuration that a new text tower leaves."""
    kept: dict[str, Any] = {key: config[key] for key in ("embed_dim", "vision_cfg", "init_logit_bias") if key in config}
    return {**kept, "quick_gelu": has_quick_gelu(config)}


def with_random_weights(base: Encoder) -> Encoder:
    """The base encoder with a text side and logit scale of the same structure and random weights."""
    with TemporaryDirectory() as folder:
        base.save_text_files(Path(folder))
        model = build(base.sidecar.architecture, Path(folder))
    model.visual = base.model.visual
    return Encoder(model.eval(), base.sidecar, base.tokenizer)
