"""The tokenizer of an encoder: CLIP's, or that of a Hugging Face folder for text towers made of language models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from open_clip.tokenizer import HFTokenizer

from components.core.errors import InputError
from components.core.files import content_hash
from components.encoders.adapter.tokens import ClipTokenizer, Tokenizer, Tokens, in_blocks


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


class HuggingFaceTokenizer:
    """The tokenizer of a Hugging Face folder or name, through open_clip, which cleans texts as its models expect.

    Args:
        source: the folder or name.
        context_length: tokens per text; less where the tokenizer itself allows less.
        options: open_clip's `tokenizer_kwargs`.

    Raises:
        InputError: there is no tokenizer at `source`, or it has no padding token.
    """

    def __init__(self, source: str | Path, context_length: int, **options: Any) -> None:
        try:
            self._wrapped = HFTokenizer(str(source), context_length=context_length, trust_remote_code=False, **options)
        except (OSError, ValueError) as error:
            raise InputError(
                f"no tokenizer at '{source}' ({str(error).splitlines()[0]}): give a Hugging Face folder with its "
                "tokenizer files, or a name that can be fetched"
            ) from None
        inner = self._wrapped.tokenizer
        if inner.pad_token_id is None:
            raise InputError(f"the tokenizer at '{source}' has no padding token: choose a masked language model")
        inner.padding_side = "right"
        # A text that says "[PAD]" means these letters; as padding it would be cut out of its own features.
        inner.split_special_tokens = True
        self.pad_id: int = inner.pad_token_id
        self.pad_token: str = inner.pad_token
        self.is_fast: bool = inner.is_fast
        self.context_length = min(context_length, inner.model_max_length)
        self._wrapped.context_length = self.context_length
        self.identity = f"huggingface-{_content(inner, options)[:16]}"

    def __call__(self, texts: Sequence[str]) -> Tokens:
        return in_blocks(texts, self.context_length, lambda block: self._wrapped(block).numpy())

    def lengths(self, tokens: Tokens) -> npt.NDArray[np.int64]:
        lengths: npt.NDArray[np.int64] = np.count_nonzero(tokens != self.pad_id, axis=1).astype(np.int64)
        return lengths

    def texts(self, tokens: Tokens) -> list[str]:
        return self._wrapped.tokenizer.batch_decode(tokens, skip_special_tokens=True)  # type: ignore[no-any-return]

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files."""
        self._wrapped.tokenizer.save_pretrained(folder)


def _content(tokenizer: Any, options: dict[str, Any]) -> str:
    """Hash of what decides about ids: not of how far the last batch was padded, which the tokenizer keeps too."""
    whole = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else {"vocab": tokenizer.get_vocab()}
    whole |= {"truncation": None, "padding": None, "options": options}
    return content_hash(json.dumps(whole, sort_keys=True))
