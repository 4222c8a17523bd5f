"""A column of texts says what a list of them would."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.tables import arrays
from components.core.tables.arrays import TextColumn

TEXTS = ["ape", "", "bee", "ape", "caf\u00e9"]


def test_it_is_the_sequence_that_it_was_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_BLOCK", 2)
    series, chunks = pd.Series(TEXTS, index=range(5, 10)), pa.chunked_array([TEXTS[:2], TEXTS[2:]])
    for given_texts in (TEXTS, series, pa.array(TEXTS), chunks):
        column = TextColumn(given_texts)
        assert list(column) == [column[place] for place in range(len(column))] == TEXTS, type(given_texts)
        assert list(column[1:3]) == TEXTS[1:3]
        assert list(TextColumn(column)) == TEXTS


@given(st.lists(st.text(max_size=2)), st.lists(st.text(max_size=2)))
def test_places_are_the_first(texts: list[str], wanted: list[str]) -> None:
    expected = [texts.index(text) if text in texts else -1 for text in wanted]
    assert TextColumn(texts).places(wanted).tolist() == expected


def test_it_takes_hardly_more_memory_than_its_letters() -> None:
    texts = [f"text number {number}" for number in range(10_000)]
    assert TextColumn(texts).arrow.nbytes < sum(map(len, texts)) + 9 * len(texts)
