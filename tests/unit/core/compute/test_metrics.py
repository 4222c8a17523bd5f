from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.retrieval import retrieval_hit_rate

from components.core.compute import metrics
from components.core.compute.metrics import Indices, average_overlap, gold_ranks, jaccard_similarity, top_k

K = 5


@st.composite
def list_pairs(draw: st.DrawFn) -> tuple[Indices, Indices]:
    rows = draw(st.integers(1, 4))
    lists = st.permutations(range(8)).map(lambda order: order[:K])
    return tuple(np.array(draw(st.lists(lists, min_size=rows, max_size=rows))) for _ in range(2))  # type: ignore[return-value]


def test_average_overlap_and_jaccard_similarity_by_hand() -> None:
    a = np.array([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3]])
    b = np.array([[1, 2, 3], [2, 1, 9], [7, 8, 1], [7, 8, 9]])
    # Row 1: depths 1, 2, 3 share 0, 2, 2 items; row 2: 0, 0, 1.
    assert average_overlap(a, b, 3) == pytest.approx([1, (0 + 2 / 2 + 2 / 3) / 3, (1 / 3) / 3, 0])
    assert average_overlap(a, b, 1) == pytest.approx([1, 0, 0, 0])
    assert jaccard_similarity(a, b, 3) == pytest.approx([1, 2 / 4, 1 / 5, 0])


@given(list_pairs(), st.integers(1, K))
def test_both_agree_with_sets_in_plain_python(pair: tuple[Indices, Indices], k: int) -> None:
    for row, (a, b) in enumerate(zip(*(lists.tolist() for lists in pair), strict=True)):
        expected = sum(len(set(a[:d]) & set(b[:d])) / d for d in range(1, k + 1)) / k
        assert average_overlap(*pair, k)[row] == pytest.approx(expected)
        assert jaccard_similarity(*pair, k)[row] == pytest.approx(len(set(a[:k]) & set(b[:k])) / len({*a[:k], *b[:k]}))


def test_recall_agrees_with_torchmetrics() -> None:
    generator = np.random.default_rng(3)
    queries = generator.standard_normal((40, 8)).astype(np.float32)
    gallery = generator.standard_normal((30, 8)).astype(np.float32)
    gold = generator.integers(0, 30, 40)
    hits = metrics.hit_at_k(gold_ranks(queries, gallery, gold), 7)
    for row, similarity in enumerate(queries @ gallery.T):
        target = torch.arange(30) == int(gold[row])
        assert hits[row] == retrieval_hit_rate(torch.from_numpy(similarity), target, top_k=7)


@pytest.mark.parametrize(("cells", "sample", "many"), [(400, 4, 256), (400, 25, 256), (40, 40, 256), (4000, 4, 1)])
def test_ranks_agree_with_a_full_sort(monkeypatch: pytest.MonkeyPatch, cells: int, sample: int, many: int) -> None:
    for name, value in {"_CELLS": cells, "_SAMPLE": sample, "_MANY": many}.items():
        monkeypatch.setattr(metrics, name, value)
    generator = np.random.default_rng(0)
    # Whole numbers make many ties, also across the k-th place.
    queries = generator.integers(-2, 3, (150, 3)).astype(np.float32)
    gallery = generator.integers(-2, 3, (40, 3)).astype(np.float32)
    expected = np.argsort(-(queries @ gallery.T), axis=1, kind="stable")
    for k in (1, 10, 40):
        np.testing.assert_array_equal(top_k(queries, gallery, k), expected[:, :k])
    gold = generator.integers(0, 40, 150)
    place = (expected == gold[:, None]).argmax(axis=1)
    np.testing.assert_array_equal(gold_ranks(queries, gallery, gold), place)


def test_ties_and_less_than_k_images() -> None:
    queries, gallery = np.ones((1, 2), np.float32), np.ones((4, 2), np.float32)
    assert top_k(queries, gallery, 3).tolist() == [[0, 1, 2]]
    assert gold_ranks(queries, gallery, np.array([2])).tolist() == [2]
    assert gold_ranks(queries, gallery, np.array([2]), ties="pessimistic").tolist() == [3]
    greater = metrics.strictly_greater(np.array([1, 2, 3], np.float32), np.array([2, 2, 2], np.float32))
    assert greater.tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="no top 5"):
        top_k(np.ones((1, 2), np.float32), np.ones((4, 2), np.float32), 5)
    with pytest.raises(ValueError, match="no top 4"):
        average_overlap(np.array([[1, 2, 3]]), np.array([[1, 2, 3, 4]]), 4)
