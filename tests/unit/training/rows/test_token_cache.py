"""Texts are tokenised once, and a file belongs to its texts and its tokenizer alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from components.core.errors import InputError
from components.encoders.adapter.tokens import ClipTokenizer, Tokens
from components.training.rows import sources as token_cache
from components.training.rows.sources import cached_tokens

TEXTS = ["a red dog", "two cats", "", "a small boat near a tree", "sky"]


class Counting:
    """CLIP's tokenizer, and how many texts it was given."""

    def __init__(self) -> None:
        self.texts = 0
        self._tokenizer = ClipTokenizer(12)

    def __call__(self, texts: Sequence[str]) -> Tokens:
        self.texts += len(texts)
        return self._tokenizer(texts)


def test_the_second_call_does_not_tokenise(tmp_path: Path) -> None:
    tokenise = Counting()
    first = cached_tokens(TEXTS, tokenise, 12, "clip-bpe", tmp_path)
    again = cached_tokens(TEXTS, tokenise, 12, "clip-bpe", tmp_path)
    assert tokenise.texts == len(TEXTS)
    expected = ClipTokenizer(12)(TEXTS)
    assert (np.asarray(first) == expected).all()
    assert (np.asarray(again) == expected).all()
    assert isinstance(again, np.memmap)


@pytest.mark.parametrize("size", [0, 60, -4])
def test_a_damaged_file_is_named(tmp_path: Path, size: int) -> None:
    cached_tokens(TEXTS, ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match=rf"{path.name} is damaged \(.*\): delete it and run the stage again"):
        cached_tokens(TEXTS, ClipTokenizer(12), 12, "clip-bpe", tmp_path)


@pytest.mark.parametrize("block", [1, 2, 5])
def test_blocks_make_up_the_whole(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "_BLOCK", block)
    monkeypatch.setattr(token_cache, "_SMALL", 3)
    found = cached_tokens(TEXTS, ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    assert (np.asarray(found) == ClipTokenizer(12)(TEXTS)).all()


def test_another_tokenizer_context_or_text_gets_another_file(tmp_path: Path) -> None:
    cached_tokens(TEXTS, ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    cached_tokens(TEXTS, ClipTokenizer(12), 12, "wordpiece", tmp_path)
    assert cached_tokens(TEXTS, ClipTokenizer(9), 9, "clip-bpe", tmp_path).shape == (5, 9)
    cached_tokens([*TEXTS[1:], TEXTS[0]], ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    # The same letters, divided otherwise.
    cached_tokens(["a red", "dog"], ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    cached_tokens(["a", "red dog"], ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    assert len(list(tmp_path.iterdir())) == 6


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "_BLOCK", 2)
    tokenizer, calls = ClipTokenizer(12), iter([True, False])

    def tokenise(texts: Sequence[str]) -> Tokens:
        if not next(calls):
            raise KeyboardInterrupt
        return tokenizer(texts)

    with pytest.raises(KeyboardInterrupt):
        cached_tokens(TEXTS, tokenise, 12, "clip-bpe", tmp_path)
    assert not list(tmp_path.iterdir())
    assert (np.asarray(cached_tokens(TEXTS, tokenizer, 12, "clip-bpe", tmp_path)) == tokenizer(TEXTS)).all()
