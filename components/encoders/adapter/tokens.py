"""Tokenizers: CLIP's, and those of Hugging Face folders for text towers made of language models."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from components.core.system.errors import InputError
from components.core.tables.files import content_hash

if TYPE_CHECKING:
    from torch import Tensor

Tokens = npt.NDArray[np.int32]

_BLOCK = 1024


class Tokenizer(Protocol):
    """Converts texts to token ids, padded on the right; on the left where a tower that reads padding learned so."""

    identity: str
    """Its name, with a hash of its files if it has any: for the sidecar and for caches of token ids."""
    context_length: int
    trims: bool
    """Whether the text tower computes the same without the padding after a text's end token."""

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Token ids `[texts, context_length]`; longer texts are cut and keep their end token."""

    def lengths(self, tokens: Tokens) -> npt.NDArray[np.int64]:
        """The number of tokens that the tower needs of each row, `[texts]`.

        If the tower `trims`, they end with the text's end token; otherwise they are the whole row.
        """

    def texts(self, tokens: Tokens) -> list[str]:
        """The texts of token ids `[texts, context_length]`, possibly cut and in lower case."""

    def save(self, folder: Path) -> None:
        """Write the files that are needed to load it, if any."""


class ClipTokenizer:
    """CLIP's byte-pair tokenizer; its end token has the highest id, padding is zero."""

    def __init__(self, context_length: int, trims: bool = True, **options: Any) -> None:
        self.context_length, self.trims = context_length, trims
        self._options = tuple(sorted(options.items()))
        self.identity = f"clip-bpe{list(self._options) if options else ''}"

    def __call__(self, texts: Sequence[str]) -> Tokens:
        encode = _byte_pairs(self.context_length, self._options)
        return in_blocks(texts, self.context_length, lambda block: encode(block).numpy())

    def lengths(self, tokens: Tokens) -> npt.NDArray[np.int64]:
        ends: npt.NDArray[np.int64] = tokens.argmax(axis=1).astype(np.int64)
        return ends + 1 if self.trims else np.full(len(tokens), self.context_length)

    def texts(self, tokens: Tokens) -> list[str]:
        decode = _byte_pairs(self.context_length, self._options).decode
        ends = tokens.argmax(axis=1)
        return [decode(row[1:end]).strip() for row, end in zip(tokens.tolist(), ends.tolist(), strict=True)]

    def save(self, folder: Path) -> None:
        """Write nothing: open_clip has the merges."""

    def forget(self, most: int) -> None:
        """Clear open_clip's cache of words if it has more than `most`; it grows without limit."""
        byte_pairs = _byte_pairs(self.context_length, self._options)
        if len(byte_pairs.cache) > most:
            special = [byte_pairs.decoder[token] for token in byte_pairs.all_special_ids]
            byte_pairs.cache = {word: word for word in special}


def tokenizer_of(config: dict[str, Any], text_files: Path | None = None) -> Tokenizer:
    """The tokenizer of an open_clip configuration, or of one whose text tower is a `LanguageTower`."""
    text = config["text_cfg"]
    length = text.get("context_length", 77)
    named = text.get("hf_tokenizer_name") or text.get("hf_model_name") or text.get("language_model")
    options = {"tokenizer_mode": text["tokenizer_mode"]} if text.get("tokenizer_mode") else {}
    options |= text.get("tokenizer_kwargs", {})
    trims = not reads_padding(text)
    if not named:
        return ClipTokenizer(length, trims, **options)
    return HuggingFaceTokenizer(text_files or named, length, trims, **options)


def reads_padding(text: dict[str, Any]) -> bool:
    """Whether an open_clip text tower's feature depends on padding, as SigLIP's, CLIPA's, MobileCLIP's and CoCa's do.

    A causal tower that pools at the end token does not, nor does a language model, which masks padding.
    """
    if text.get("hf_model_name") or text.get("language_model"):
        return False
    pools_end = text.get("pool_type", "argmax") in ("argmax", "eos")
    return bool(text.get("no_causal_mask") or text.get("embed_cls") or text.get("tokenizer_mode") or not pools_end)


class HuggingFaceTokenizer:
    """The tokenizer of a Hugging Face folder or name, in open_clip's wrapper, which cleans texts as its models expect.

    Args:
        context_length: tokens per text; less where the tokenizer itself allows less.
    """

    def __init__(self, source: str | Path, context_length: int, trims: bool = True, **options: Any) -> None:
        from open_clip.tokenizer import HFTokenizer

        try:
            self._wrapped = HFTokenizer(str(source), context_length=context_length, trust_remote_code=False, **options)
        except (OSError, ValueError, TypeError, AssertionError) as error:
            if "trust_remote_code=True" in str(error):
                raise InputError(
                    f"the tokenizer at '{source}' needs its own code, which is not run: choose one of transformers"
                ) from None
            raise InputError(
                f"no tokenizer at '{source}' ({str(error).splitlines()[0]}): give a Hugging Face folder with its "
                "tokenizer files, or a name that can be fetched"
            ) from None
        inner = self._wrapped.tokenizer
        if inner.pad_token_id is None:
            raise InputError(f"the tokenizer at '{source}' has no padding token: choose a masked language model")
        if trims:
            inner.padding_side = "right"
        # "[PAD]" in a text is text, not padding.
        inner.split_special_tokens = True
        self.pad_id: int = inner.pad_token_id
        self.pad_token: str = inner.pad_token
        self.padding_side: str = inner.padding_side
        self.clean: str = options.get("clean", "whitespace")
        self.is_fast: bool = inner.is_fast
        self.trims = trims
        self.context_length = min(context_length, inner.model_max_length)
        self._wrapped.context_length = self.context_length
        self.identity = f"huggingface-{_content(inner, options)[:16]}"

    def __call__(self, texts: Sequence[str]) -> Tokens:
        return in_blocks(texts, self.context_length, lambda block: self._wrapped(block).numpy())

    def lengths(self, tokens: Tokens) -> npt.NDArray[np.int64]:
        lengths: npt.NDArray[np.int64] = np.count_nonzero(tokens != self.pad_id, axis=1).astype(np.int64)
        return lengths if self.trims else np.full(len(tokens), self.context_length)

    def texts(self, tokens: Tokens) -> list[str]:
        return self._wrapped.tokenizer.batch_decode(tokens, skip_special_tokens=True)  # type: ignore[no-any-return]

    def highest_id(self) -> int:
        """The highest id that a text can have; special tokens are left out, since some are in no text."""
        ids: dict[str, int] = self._wrapped.tokenizer.get_vocab()
        return max(set(ids.values()) - set(self._wrapped.tokenizer.all_special_ids))

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files."""
        self._wrapped.tokenizer.save_pretrained(folder)


def _content(tokenizer: Any, options: dict[str, Any]) -> str:
    """Hash of everything that defines the ids, without the padding of the last batch, which is stored with it."""
    whole = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else {"vocab": tokenizer.get_vocab()}
    whole |= {"truncation": None, "padding": None, "options": options}
    # Padding on the right, which almost all have, is not named: older encoders keep their hash.
    whole |= {"padding_side": "left"} if tokenizer.padding_side == "left" else {}
    return content_hash(json.dumps(whole, sort_keys=True))


def in_blocks(texts: Sequence[str], context_length: int, encode: Callable[[list[str]], Any]) -> Tokens:
    """`encode` in blocks of texts, to save memory for long lists; `[texts, context_length]`."""
    tokens = np.zeros((len(texts), context_length), dtype=np.int32)
    for start in range(0, len(texts), _BLOCK):
        tokens[start : start + _BLOCK] = encode(list(texts[start : start + _BLOCK]))
    return tokens


def token_lengths(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """The number of CLIP's tokens of each text before it is cut, with start and end token."""
    encode = _byte_pairs(77).encode
    return np.array([len(encode(text)) + 2 for text in texts], dtype=np.int64)


def trimmed(tokens: Tokens, lengths: npt.NDArray[np.int64]) -> Tensor:
    """Token ids cut after the longest row's last token, as int64 `[batch, longest]`.

    Features do not change: rows of towers that read padding have their full length.
    """
    import torch

    return torch.from_numpy(tokens[:, : int(lengths.max(initial=1))].astype(np.int64))


@cache
def whole_words() -> frozenset[str]:
    """The words of three letters or more that are one token of CLIP's vocabulary, about 30,000 frequent ones."""
    ends = (piece.removesuffix("</w>") for piece in _byte_pairs(77).encoder if piece.endswith("</w>"))
    return frozenset(word for word in ends if len(word) > 2 and word.isalpha())


@cache
def _byte_pairs(context_length: int, options: tuple[tuple[str, Any], ...] = ()) -> Any:
    from open_clip import SimpleTokenizer

    try:
        return SimpleTokenizer(context_length=context_length, **dict(options))
    except (TypeError, AssertionError) as error:
        raise InputError(
            f"open_clip does not know these tokenizer_kwargs ({error}): correct the model's JSON"
        ) from None
