"""Pairs are drawn by seed, evenly and without replacement, and named after their sources."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from components.captions.prompting.inputs.readers import ordered_pairs, paired
from components.captions.prompting.request import InputRow


def _pool(count: int) -> list[InputRow]:
    return [InputRow(str(number), 0, {"caption": f"caption {number}"}) for number in range(count)]


@given(count=st.integers(0, 40), wanted=st.integers(1, 2000), seed=st.integers(0, 1000))
def test_ordered_pairs_are_different_and_never_of_one_alone(count: int, wanted: int, seed: int) -> None:
    found = list(ordered_pairs(count, wanted, seed))
    assert len(found) == len(set(found)) == min(wanted, count * (count - 1))
    assert found == sorted(found) == list(ordered_pairs(count, wanted, seed))
    assert all(first != second and 0 <= min(first, second) <= max(first, second) < count for first, second in found)


def test_every_pair_is_drawn_as_often_as_any_other() -> None:
    for wanted in (3, 9):
        drawn = Counter(pair for seed in range(1500) for pair in ordered_pairs(4, wanted, seed))
        expected = 1500 * wanted / 12
        assert len(drawn) == 12
        assert max(abs(count - expected) for count in drawn.values()) < 0.15 * expected


def test_without_a_number_every_caption_has_the_partner_that_stored_answers_are_about() -> None:
    rng = random.Random("caption pairs 0")
    expected = [str((place + rng.randrange(1, 1200)) % 1200) for place in range(1200)]
    found = list(paired(_pool(1200), None, 0))
    assert [source.other_id for source in found] == expected
    assert [(source.id, source.sample) for source in found] == [(str(place), 0) for place in range(1200)]


def test_a_pair_has_the_inputs_of_both_and_the_first_ones_pairs_are_numbered() -> None:
    rows = [InputRow(pair, 0, {"name": name}) for pair, name in (("a", "one"), ("b", "two"), ("c", "three"))]
    first, *others = paired(rows, 6, 0)
    assert first == InputRow("a", 0, {"name": "one", "other_name": "two"}, "b")
    assert [(source.id, source.sample) for source in others] == [("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1)]
