"""Tokenising keeps the end token and counts what matters, with either kind of tokenizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from components.encoders.adapter.language_tower import packaged_model
from components.encoders.adapter.tokens import ClipTokenizer, HuggingFaceTokenizer, Tokenizer, token_lengths, trimmed

END = 49407


def _kinds(language_folders: dict[str, Path]) -> list[Tokenizer]:
    return [ClipTokenizer(24), *(HuggingFaceTokenizer(folder, 24) for folder in language_folders.values())]


def test_long_texts_are_cut_and_keep_their_end_token(language_folders: dict[str, Path]) -> None:
    clip, texts = ClipTokenizer(24), ["word " * 100, "word"]
    tokens = clip(texts)
    assert tokens.shape == (2, 24)
    assert tokens[0, -1] == END
    assert clip.lengths(tokens).tolist() == [24, 3]
    assert token_lengths(texts).tolist() == [102, 3]
    for kind, pad in (("bert", 0), ("roberta", 1)):
        tokenizer = HuggingFaceTokenizer(language_folders[kind], 6)
        tokens = tokenizer(["a dog on the long sofa with a hat", "dog"])
        assert tokens[0, -1] == tokens[1, 2]
        assert tokens[1, 3:].tolist() == [pad] * 3
        assert tokenizer.lengths(tokens).tolist() == [6, 3]


@given(texts=st.lists(st.text(alphabet="ado g\n<", max_size=60), max_size=5))
def test_only_padding_follows_the_end_of_a_text(language_folders: dict[str, Path], texts: list[str]) -> None:
    for tokenizer in _kinds(language_folders):
        tokens = tokenizer(texts)
        lengths = tokenizer.lengths(tokens)
        assert tokens.dtype == np.int32
        assert tokens.shape == (len(texts), 24)
        assert lengths.dtype == np.int64
        for row, length in zip(tokens, lengths, strict=True):
            assert 2 <= length <= 24
            assert len(set(row[length:].tolist())) <= 1
        assert trimmed(tokens, lengths).shape == (len(texts), max(lengths, default=1))


def test_many_texts_have_the_tokens_of_each_by_itself(language_folders: dict[str, Path]) -> None:
    texts = ["a dog", "hats", "two small hats"] * 700
    for tokenizer in _kinds(language_folders):
        np.testing.assert_array_equal(tokenizer(texts), np.tile(tokenizer(texts[:3]), (700, 1)))


def test_special_tokens_in_a_text_are_letters_and_the_tokenizers_own_limit_counts(
    language_folders: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer = HuggingFaceTokenizer(packaged_model(), 12)
    padded, plain = tokenizer(["red [PAD] dog", "red dog"])
    assert tokenizer.pad_id not in padded[: tokenizer.lengths(padded[None])[0]]
    assert tokenizer.lengths(padded[None])[0] > tokenizer.lengths(plain[None])[0]
    AutoTokenizer.from_pretrained(language_folders["bert"], model_max_length=7).save_pretrained(tmp_path)
    assert HuggingFaceTokenizer(tmp_path, 24)(["a dog"]).shape == (1, 7)


def test_a_saved_tokenizer_keeps_its_identity_which_others_do_not_have(
    language_folders: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer, texts = HuggingFaceTokenizer(language_folders["roberta"], 24), ["a dog", "two hats"]
    tokenizer.save(tmp_path)
    loaded = HuggingFaceTokenizer(tmp_path, 24)
    assert loaded.identity == tokenizer.identity
    np.testing.assert_array_equal(loaded(texts), tokenizer(texts))
    identities = [tokenizer.identity for tokenizer in _kinds(language_folders)]
    assert identities[0] == "clip-bpe"
    assert len(set(identities)) == 3
    assert HuggingFaceTokenizer(language_folders["bert"], 24, clean="lower").identity not in identities
