"""Perturbations of captions: what they change, how much, and that they can be repeated."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.experiments.parts.perturbations import perturbations, perturbed

CAPTION = "Two children sitting together near some wooden tables outside."
SYNONYMS = {"children": ["kids", "youngsters"], "wooden": ["timber"]}
ALL = perturbations(lambda word: SYNONYMS.get(word, []))


def _words(name: str, severity: int = 7, seed: int = 0) -> list[str]:
    return perturbed(CAPTION, ALL[name], severity, seed).split(" ")


def _changed(name: str, severity: int) -> list[tuple[str, str]]:
    return [(old, new) for old, new in zip(CAPTION.split(" "), _words(name, severity), strict=True) if old != new]


@pytest.mark.parametrize("name", ["keyboard", "ocr", "char_insert", "char_replace", "char_swap", "char_delete"])
def test_characters_change_in_a_share_of_the_words_that_grows(name: str) -> None:
    """Nine words: 0.05 of them is rounded up to one, 0.35 of them down to three."""
    assert len(_changed(name, 1)) <= 1
    assert 1 <= len(_changed(name, 7)) <= 3
    growth = {"char_insert": 1, "char_delete": -1}.get(name, 0)
    for old, new in _changed(name, 7):
        changes = max(int(0.3 * len(old)), 2 if name == "ocr" else 1)
        assert len(new) - len(old) == growth * changes
    if name == "char_swap":
        assert all(Counter(old) == Counter(new) for old, new in _changed(name, 7))
    if name != "ocr":
        assert all(len(old) >= 4 for old, _ in _changed(name, 7)), "short words stay"


def test_a_wrong_key_is_a_neighbour() -> None:
    drawn = [perturbed("desk", ALL["keyboard"], 1, seed) for seed in range(40)]
    touched = {pair for word in drawn for pair in zip("desk", word, strict=True)}
    neighbours = {"d": "ersfxc", "e": "wrsd", "s": "weadzx", "k": "iojlm"}
    assert all(old == new or new in neighbours[old] for old, new in touched)
    assert len(touched) > len(neighbours)


def test_words() -> None:
    assert Counter(_words("word_swap")) == Counter(CAPTION.split(" "))
    assert _words("word_swap") != CAPTION.split(" ")
    kept = iter(CAPTION.split(" "))
    assert all(word in kept for word in _words("word_deletion")), "what is left is in order"
    assert len(_words("word_deletion", 15)) < 9
    assert [word for word in _words("insert_punctuation") if word not in set(".,!?;:")] == CAPTION.split(" ")
    assert 10 <= len(_words("insert_punctuation")) <= 9 + 4
    replaced = perturbed(CAPTION, ALL["synonym_replacement"], 7, 0)
    assert "kids" in replaced or "youngsters" in replaced
    assert "timber" in replaced
    inserted = Counter(_words("word_insertion")) - Counter(CAPTION.split(" "))
    assert inserted.total() == 3
    assert set(inserted) <= {"kids", "youngsters", "timber"}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.text(max_size=40), st.integers(1, 20), st.integers(0, 99))
def test_any_text_is_perturbed_the_same_way_again(name: str, text: str, severity: int, seed: int) -> None:
    found = perturbed(text, ALL[name], severity, seed)
    assert found == perturbed(text, ALL[name], severity, seed)
    assert bool(found) or not text.strip()
