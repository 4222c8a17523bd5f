"""Tokenising keeps the end token and counts what was cut."""

from __future__ import annotations

import numpy as np

from components.encoders.tokens import token_lengths, tokenize, trimmed

END = 49407


def test_long_texts_are_cut_and_keep_their_end_token() -> None:
    tokens = tokenize(["word " * 100, "word"], 24)
    assert tokens.shape == (2, 24)
    assert tokens[0, -1] == END
    assert tokens[1].argmax() == 2


def test_lengths_count_tokens_before_the_cut() -> None:
    assert token_lengths(["word", "word " * 100]).tolist() == [3, 102]


def test_trimming_keeps_the_longest_texts_end_token() -> None:
    batch = trimmed(tokenize(["word", "word word word"], 24))
    assert batch.shape == (2, 5)
    assert int(batch[1, -1]) == END


def test_no_texts_give_no_rows() -> None:
    assert tokenize([], 24).shape == (0, 24)
    assert np.issubdtype(tokenize([], 24).dtype, np.int32)
