"""Captions of pairs: sentences as words and numbers, scores by hand where possible, tokens of pictures."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.benchmarks.scoring.encoding.published_context import ImageFeatures, PublishedContext
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import decode, normalise
from components.experiments.parts.captioned_pairs import (
    EDGE,
    PAD,
    PicturePair,
    Vocabulary,
    caption_scores,
    has_java,
    scorers,
    split_words,
)
from components.experiments.parts.clip4idc_model import captioned_pairs, picture_tokens
from components.test_sets.pictures import picture_bytes
from tests.support.toy_context import toy_context

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="METEOR and the tokenizer are Java programs")
SENTENCES = (
    "The two people aren't in the parking-lot any more.",
    "there is a white car by the building; it wasn't there before!",
    "The man's jacket is 2 meters away, and he can't see it?",
    "nothing has changed .",
    "they've gone (both of them) -- she'll be back...",
    "a person in a t-shirt cannot be seen , he left",
)


def test_words_are_in_lower_case_without_punctuation() -> None:
    words = ["it", "is", "n't", "red", "it", "'s", "blue-green", "3.5", "m"]
    assert split_words("  It isn’t RED, it's blue-green: 3.5 m! ") == words
    assert split_words(" . , -- ") == []


@needs_java
def test_words_are_those_of_the_tokenizer_of_image_captioning() -> None:
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer  # type: ignore[import-untyped]

    theirs = PTBTokenizer().tokenize({row: [{"caption": one}] for row, one in enumerate(SENTENCES)})
    # It writes brackets as -lrb- and strips them only in capitals.
    expected = [[word for word in theirs[row][0].split() if word not in ("-lrb-", "-rrb-")] for row in range(6)]
    assert [split_words(one) for one in SENTENCES] == expected


def test_numbers_are_closed_and_filled_up_and_give_the_sentence_back() -> None:
    vocabulary = Vocabulary.of(["A car left.", "no car"])
    assert vocabulary.words == ("a", "car", "left", "no")
    assert len(vocabulary) == 6
    rows = vocabulary.numbers(["no car", "a new car left", ""])
    assert rows.tolist() == [[5, 3, EDGE, PAD], [2, 3, 4, EDGE], [EDGE, PAD, PAD, PAD]]
    assert [vocabulary.sentence(row) for row in rows.tolist()] == ["no car", "a car left", ""]


def test_cider_counts_rare_words_and_is_ten_for_the_reference_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # Without Java.
    references = [["the dog is gone now"], ["the cat is here now"], ["one bird flew off today"]]
    same = caption_scores([one for (one,) in references], references)
    assert same.cider == pytest.approx([10, 10, 10])
    assert same.rouge_l.tolist() == [1, 1, 1]
    assert (same.bleu_4, same.meteor) == (pytest.approx(1), None)
    found = caption_scores(["the now", "the cat is here now", ""], references)
    assert 0 < found.cider[0] < 1
    assert (found.cider[2], found.rouge_l[2]) == (0, 0)


@pytest.mark.slow
@needs_java
def test_meteor_is_one_for_the_reference_itself() -> None:
    assert has_java()
    references = [["the dog is gone"], ["a man walks in"]]
    assert caption_scores([one for (one,) in references], references).meteor == pytest.approx(1.0)


def test_a_failing_java_a_missing_package_and_missing_references(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="METEOR's Java program ended without a score"):
        caption_scores(["a"], [["a"]])
    with pytest.raises(ValueError, match="needs a reference"):
        caption_scores(["a", "b"], [["a"], []])
    for module in [name for name in sys.modules if name.startswith("pycocoevalcap")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)
    with pytest.raises(InputError, match=r"pip install cliptune\[captioning\]"):
        scorers()


def _context(encoder: Encoder, folder: Path) -> PublishedContext:
    under_test = EncoderUnderTest("tiny", encoder, "tiny", "tower", 16)
    return PublishedContext(under_test, folder, image_features=ImageFeatures(folder / "cache"))


def test_tokens_are_the_feature_and_those_of_the_patches(tiny_encoder: Encoder, tmp_path: Path, png: Any) -> None:
    images = [png((255, 0, 0)), png((0, 80, 255))]
    pictures = [picture_bytes(str(row), image) for row, image in enumerate(images)]
    found = picture_tokens(_context(tiny_encoder, tmp_path), pictures)
    # Two by two patches of the tower are fewer than the grid's places.
    assert found.shape == (2, 5, 16)
    assert found[:, 0] == pytest.approx(tiny_encoder.embed_images(images), abs=1e-5)
    tower = tiny_encoder.model.visual
    tower.output_tokens = True
    with torch.inference_mode():
        _, patches = tower(normalise(decode(images, 16)))
    assert found[:, 1:] == pytest.approx((patches @ tower.proj.detach()).numpy(), abs=1e-5)


def test_other_towers_give_one_token_and_text_encoders_none(tmp_path: Path, png: Any) -> None:
    context, pictures = toy_context(tmp_path, {}), [picture_bytes("a", png((255, 0, 0)))]
    assert picture_tokens(context, pictures).tolist() == [[[1, 0, 0]]]
    blind = EncoderUnderTest("blind", context.under_test.encoder, "blind")
    with pytest.raises(InputError, match="'blind' has no image tower"):
        picture_tokens(PublishedContext(blind, tmp_path), pictures)


def test_examples_keep_the_order_of_pictures_and_the_pair_of_each_sentence(tmp_path: Path, png: Any) -> None:
    axes = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    red, green, blue = (picture_bytes(str(axis), png(tuple(255 * part for part in axis))) for axis in axes)
    pairs = [PicturePair(red, green, ("one", "two")), PicturePair(blue, red, ()), PicturePair(green, blue, ("three",))]
    found = captioned_pairs(toy_context(tmp_path, dict(zip(("one", "two", "three"), axes, strict=True))), pairs)
    assert found.before[:, 0].tolist() == [axes[0], axes[2], axes[1]]
    assert found.after[:, 0].tolist() == [axes[1], axes[0], axes[2]]
    assert (found.sentences, found.pair.tolist()) == (("one", "two", "three"), [0, 0, 2])
    assert found.features.tolist() == axes
