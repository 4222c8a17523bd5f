"""Queries that exclude turn away from what they exclude, and all others stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.encoders.adapter.encoder import Encoder, Vectors
from components.encoders.excluding import embed_queries, excluding, parts_of


def test_only_words_behind_a_sign_or_a_negation_are_excluded() -> None:
    for query, parts in {
        "a street -people": ["a street", "people"],
        "red shoes -heels -laces": ["red shoes", "heels", "laces"],
        "a beach without the dog": ["a beach", "dog"],
        "a room with no people.": ["a room", "people"],
        "fruit but not apples": ["fruit", "apples"],
        "a t-shirt, size 4-6": ["a t-shirt, size 4-6"],
        "minus -5 degrees": ["minus -5 degrees"],
        "-people": ["-people"],
        "without a dog": ["without a dog"],
        "": [""],
    }.items():
        assert parts_of(query) == parts, query


@given(st.integers(0, 2**32 - 1), st.floats(1, 89))
def test_the_turn_is_a_caps_angle_less_half_of_the_angle_between_the_texts(seed: int, cap: float) -> None:
    wanted, excluded = _unit(np.random.default_rng(seed).normal(size=(2, 5)))
    turned = excluding(wanted[None], excluded[None], cap)[0]
    between = np.degrees(np.arccos(np.clip(wanted @ excluded, -1, 1)))
    turn = max(0.0, cap - between / 2)
    assert np.linalg.norm(turned) == pytest.approx(1, abs=1e-5)
    assert turned @ wanted == pytest.approx(np.cos(np.radians(turn)), abs=1e-4)
    # In the plane of the two, on the far side.
    assert turned @ excluded == pytest.approx(np.cos(np.radians(between + turn)), abs=1e-4)


def test_several_things_are_excluded_one_after_another_and_equal_texts_stay(tiny_encoder: Encoder) -> None:
    queries = ["a dog", "a dog -cat", "a dog -cat -red"]
    found = embed_queries(tiny_encoder.embed_texts, queries)
    dog, cat, red = tiny_encoder.embed_texts(["a dog", "cat", "red"])
    once = excluding(dog[None], cat[None])
    np.testing.assert_allclose(found, [dog, once[0], excluding(once, red[None])[0]], atol=1e-6)
    np.testing.assert_allclose(excluding(dog[None], dog[None]), dog[None])


def _unit(rows: Vectors) -> Vectors:
    unit: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit
