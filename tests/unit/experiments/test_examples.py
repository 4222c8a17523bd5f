"""Tokens of pictures: the tower's own feature first, then its places, from the cache when they are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.benchmarks.scoring.encoding.published_context import ImageFeatures, PublishedContext
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import decode, normalise
from components.experiments.parts.captioned_pairs import PicturePair
from components.experiments.parts.clip4idc_model import captioned_pairs, picture_tokens
from components.test_sets.pictures import picture_bytes
from tests.support.toy_context import toy_context


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
