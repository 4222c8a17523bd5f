"""Chooses the tokenizer of an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.encoders.adapter.texts.huggingface_tokenizer import HuggingFaceTokenizer
from components.encoders.adapter.texts.tokens import ClipTokenizer, Tokenizer


def tokenizer_of(config: dict[str, Any], text_files: Path | None = None) -> Tokenizer:
    """The tokenizer of an open_clip configuration, or of one whose text tower is a `LanguageTower`.

    Args:
        text_files: folder with the tokenizer's files, where it has any; without it the configuration names the source.

    Raises:
        InputError: the tokenizer cannot be found.
    """
    text = config["text_cfg"]
    length = text.get("context_length", 77)
    named = text.get("hf_tokenizer_name") or text.get("hf_model_name") or text.get("language_model")
    options = text.get("tokenizer_kwargs", {})
    return HuggingFaceTokenizer(text_files or named, length, **options) if named else ClipTokenizer(length)
