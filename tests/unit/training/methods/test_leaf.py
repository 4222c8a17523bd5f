"""LEAF keeps features of misspelt texts where those of the texts themselves were before training."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.text_tower import text_features
from components.training.methods.leaf import METHOD, Search, edited, makes_word, misspelt
from tests.unit.training.methods.examples import losses_of, random_columns

TEXTS = ["a small dog left of a cat", "two red hats", "the large boat"]


def _search(encoder: Encoder, tries: int = 8) -> Search:
    return Search(encoder, METHOD.read({"tries": tries, "protocol": "own"}).settings)


def _attacked(encoder: Encoder, texts: list[str], tries: int = 8) -> list[str]:
    tokens = encoder.tokenizer(texts)
    with torch.no_grad():
        return encoder.tokenizer.texts(_search(encoder, tries)({"caption": tokens}).tokens["caption"])


def _edits(text: str, changed: str) -> int:
    """Length of the part that is left without the common start and end: at most 1 for one edit."""

    def common(one: str, other: str) -> int:
        return next((n for n in range(min(len(one), len(other))) if one[n] != other[n]), min(len(one), len(other)))

    start = common(text, changed)
    return max(len(text), len(changed)) - start - common(text[start:][::-1], changed[start:][::-1])


def test_the_loss_is_the_squared_distance_of_raw_features() -> None:
    columns = random_columns(("caption", "clean"))
    caption, clean = (columns[name].numpy() for name in ("caption", "clean"))
    expected = np.square(caption - clean).sum(axis=1).mean()
    assert losses_of({"method": "leaf"}, columns) == pytest.approx({"distance": expected})


@given(text=st.text("ab c", min_size=1, max_size=6), data=st.data())
def test_a_misspelt_text_is_one_edit_from_the_text(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, 2 * len(text)))
    character = data.draw(st.sampled_from(["", " ", "x"]))
    assert _edits(text, misspelt(text, place, character)) <= 1


def test_places_are_between_characters_or_one_of_them_and_released_repeats_no_character() -> None:
    assert [misspelt("ab", place, "x") for place in range(5)] == ["xab", "xb", "axb", "ax", "abx"]
    assert [misspelt("ab", place, "") for place in range(5)] == ["ab", "b", "ab", "a", "ab"]
    drawn = [(1, "a"), (1, "x"), (2, "a"), (3, ""), (3, "b")]
    assert [edited("ab", place, character) for place, character in drawn] == ["b", "xb", "aab", "a", "a"]
    assert [misspelt("ab", place, character) for place, character in drawn] == ["ab", "xb", "aab", "a", "ab"]


def test_an_error_that_spells_a_word_is_refused() -> None:
    assert makes_word("a bat", "a cat")
    assert makes_word("seashore", "sea shore")
    assert not makes_word("a bat", "a bxt")
    assert not makes_word("cat and bat", "cat and btt")


def test_allowed_errors_and_tries_differ_as_released(tiny_encoder: Encoder) -> None:
    released, own = (Search(tiny_encoder, METHOD.read({"protocol": name}).settings) for name in ("released", "own"))
    allowed = {"a bxt on the mat": (True, True), "a  bat on the mat": (False, True), "a cat on the mat": (False, False)}
    for changed, expected in (allowed | {"a bat on themat": (True, True)}).items():
        assert (released._allowed("a bat on the mat", changed), own._allowed("a bat on the mat", changed)) == expected
    draw, among = random.Random(0), list(range(50))
    assert sorted(released._drawn(draw, among)) == among
    assert len(set(own._drawn(draw, among))) < len(own._drawn(draw, among)) == 50
    assert len(released._drawn(draw, [1, 2])) == 50


def test_errors_are_one_edit_away_and_far_in_features(tiny_encoder: Encoder) -> None:
    torch.manual_seed(0)
    found = _attacked(tiny_encoder, TEXTS)
    assert not set(found) & set(TEXTS)
    # The tokenizer sets punctuation apart.
    for text, wrong in zip(TEXTS, found, strict=True):
        assert _edits(text.replace(" ", ""), wrong.replace(" ", "")) <= 1
    torch.manual_seed(0)
    harder = _attacked(tiny_encoder, TEXTS, tries=60)

    def moved(texts: list[str]) -> float:
        clean, wrong = (tiny_encoder.embed_texts(list(part)) for part in (TEXTS, texts))
        return float(np.square(clean - wrong).sum())

    assert moved(harder) > moved([misspelt(text, 1, "x") for text in TEXTS])


def test_the_clean_features_are_those_before_training(tiny_encoder: Encoder) -> None:
    search, tokens = _search(tiny_encoder), tiny_encoder.tokenizer(TEXTS)
    with torch.no_grad():
        before = text_features(tiny_encoder.model, torch.from_numpy(tokens.astype(np.int64)))
        for weights in tiny_encoder.model.parameters():
            weights.add_(0.1)
        found = search({"caption": tokens})
    assert torch.allclose(found.features["clean"], before, atol=1e-5)


def test_the_error_of_a_text_does_not_depend_on_the_rest_of_its_batch(tiny_encoder: Encoder) -> None:
    torch.manual_seed(4)
    together = _attacked(tiny_encoder, TEXTS)
    torch.manual_seed(4)
    assert _attacked(tiny_encoder, TEXTS[1:]) == together[1:]
