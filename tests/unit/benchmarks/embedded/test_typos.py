"""Errors that are put into queries, and what rankings of the whole gallery have in common."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from scipy.stats import spearmanr

from components.benchmarks.embedded.typos import with_typing_errors
from components.core.compute.metrics import rank_correlation

WRITTEN = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(lambda text: bool(text.strip()))


@given(WRITTEN, st.integers(1, 12))
def test_every_error_changes_one_character_and_errors_differ(text: str, count: int) -> None:
    found = with_typing_errors(text, count)
    assert len(set(found)) == len(found) == count
    assert {Levenshtein.distance(text, one) for one in found} == {1}
    assert found == with_typing_errors(text, count)


def test_errors_insert_drop_and_replace_and_spaces_have_none() -> None:
    text = "a cat on a mat"
    assert {len(one) - len(text) for one in with_typing_errors(text, 30)} == {-1, 0, 1}
    with pytest.raises(ValueError, match="a text of spaces"):
        with_typing_errors("  ", 1)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40))
def test_rank_correlation_is_scipys(seed: int, items: int) -> None:
    rng = np.random.default_rng(seed)
    # Small whole numbers, so that many images are equally similar.
    one, other = rng.integers(-2, 3, (2, 5, 3)).astype(np.float32)
    gallery = rng.integers(-2, 3, (items, 3)).astype(np.float32)
    found = rank_correlation(one, other, gallery)
    for row in range(5):
        similarity = gallery @ one[row], gallery @ other[row]
        if all(np.ptp(values) > 0 for values in similarity):
            assert found[row] == pytest.approx(spearmanr(*similarity).statistic)
        else:
            assert found[row] == 0
