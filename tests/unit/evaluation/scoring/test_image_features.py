"""Image features: computed once for a tower and a picture, cropped as the protocol says, hostile files refused."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor
from torchvision import transforms

from components.core.system.errors import InputError
from components.data.test_sets.files import picture_file
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import SQUASHED, Preparation
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.scoring.published_context import ImageFeatures
from components.registry.encoder_lookup import encoder_under_test, find_encoder
from tests.support.toy_context import ToyEncoder, colour_image, picture_bytes

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


class Watched(ToyEncoder):
    """Keeps the batches of pixels that it embeds."""

    def __init__(self) -> None:
        super().__init__({})
        self.batches: list[Tensor] = []

    def embed_pixels(self, pixels: Tensor) -> Any:
        self.batches.append(pixels)
        return super().embed_pixels(pixels)


class Broken(ToyEncoder):
    """Returns NaN for red pictures, as a tower whose weights overflow does."""

    def embed_pixels(self, pixels: Tensor) -> Any:
        found = super().embed_pixels(pixels)
        found[found[:, 0] == 1] = np.nan
        return found


@pytest.fixture
def encoder() -> Watched:
    return Watched()


@pytest.fixture
def under_test(encoder: Watched) -> EncoderUnderTest:
    return EncoderUnderTest("toy", encoder, "toy", "tower", Preparation(size=8))


@pytest.fixture
def cache(tmp_path: Path) -> ImageFeatures:
    return ImageFeatures(tmp_path / "cache", batch_size=2, threads=3)


def pictures(folder: Path, *colours: tuple[int, int, int]) -> list[Any]:
    paths = [folder / f"{number}.png" for number in range(len(colours))]
    for path, colour in zip(paths, colours, strict=True):
        colour_image(path, colour)
    return [picture_file(path) for path in paths]


def test_only_the_box_is_embedded_and_bad_pictures_are_named(
    tmp_path: Path, cache: ImageFeatures, under_test: EncoderUnderTest
) -> None:
    image = Image.new("RGB", (20, 10), RED)
    image.paste(BLUE, (10, 0, 20, 10))
    image.save(tmp_path / "a.png")
    boxes = [picture_file(tmp_path / "a.png", box) for box in (None, (0, 0, 10, 10), (10, 0, 10, 10))]
    whole, left, right = cache.of(under_test, boxes)
    assert (left.tolist(), right.tolist()) == ([1, 0, 0], [0, 0, 1])
    assert min(whole[0], whole[2]) > 0.5
    colour_image(tmp_path / "a.png", RED)
    whole = (tmp_path / "a.png").read_bytes()
    for name, content in {"half": whole[:40], "no image": b"GIF89a", "nothing": b""}.items():
        with pytest.raises(InputError, match=f"image {name} cannot be decoded"):
            cache.of(under_test, [picture_bytes("good", whole), picture_bytes(name, content)])
    with pytest.raises(InputError, match=r"b\.png is missing"):
        picture_file(tmp_path / "b.png")
    with pytest.raises(InputError, match="'text' has no image tower"):
        cache.of(EncoderUnderTest("text", ToyEncoder({}), "x"), [picture_bytes("good", whole)])


def test_pictures_are_embedded_once_per_tower_and_content(
    tmp_path: Path, cache: ImageFeatures, under_test: EncoderUnderTest, encoder: Watched
) -> None:
    def embedded(images: list[Any], **changes: Any) -> tuple[Any, list[int]]:
        encoder.batches.clear()
        features = cache.of(replace(under_test, **changes), images)
        return features.tolist(), [len(batch) for batch in encoder.batches]

    first = pictures(tmp_path / "one", RED, GREEN, RED)
    assert embedded(first) == ([[1, 0, 0], [0, 1, 0], [1, 0, 0]], [2])
    (tmp_path / "one/0.png").rename(tmp_path / "gone.png")
    assert embedded(first)[1] == [], "not even opened again"
    assert embedded(pictures(tmp_path / "other", BLUE, GREEN)) == ([[0, 0, 1], [0, 1, 0]], [1])
    for number, changes in enumerate(({"image_tower_sha256": "other"}, {"preparation": Preparation(size=4)})):
        assert embedded(pictures(tmp_path / f"again{number}", BLUE, GREEN), **changes)[1] == [2]
    path = tmp_path / "one/1.png"
    colour_image(path, BLUE)
    os.utime(path, (1, 1))
    assert embedded([picture_file(path)])[0] == [[0, 0, 1]], "a changed file"


def test_damage_is_computed_again_or_named(tmp_path: Path, cache: ImageFeatures, under_test: EncoderUnderTest) -> None:
    images = pictures(tmp_path, GREEN, RED)
    with pytest.raises(InputError, match=r"encoder 'toy' gives picture '1\.png' a feature that is not finite"):
        cache.of(replace(under_test, encoder=Broken({})), images)
    assert cache.of(under_test, images).tolist() == [[0, 1, 0], [1, 0, 0]], "NaN is not kept"
    (path,) = (tmp_path / "cache").iterdir()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE features SET feature = ?", (np.full(3, np.nan, "<f4").tobytes(),))
    for _ in range(2):
        assert cache.of(under_test, images).tolist() == [[0, 1, 0], [1, 0, 0]]
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match=rf"{path.name} cannot be used .*: delete the file"):
        cache.of(under_test, images)


def test_squashed_pictures_are_those_of_torchvisions_transforms(
    tmp_path: Path, cache: ImageFeatures, under_test: EncoderUnderTest, encoder: Watched
) -> None:
    """The transform of SemCLIP's released src/dataset.py."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, size=(30, 50, 3), dtype=np.uint8))
    noise.save(tmp_path / "a.png")
    normal = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    theirs = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor(), normal])
    squashed = cache.of(under_test, [picture_file(tmp_path / "a.png")], changes=SQUASHED)
    np.testing.assert_allclose(encoder.batches[0][0].numpy(), theirs(noise).numpy(), atol=1e-6)
    assert not np.allclose(cache.of(under_test, [picture_file(tmp_path / "a.png")]), squashed), "cached separately"


def test_features_are_those_of_embed_images(tmp_path: Path, cache: ImageFeatures, tiny_encoder: Encoder) -> None:
    generator, paths = np.random.default_rng(0), [tmp_path / f"{number}.png" for number in range(3)]
    for path, size in zip(paths, [(16, 16), (17, 31), (90, 50)], strict=True):
        Image.fromarray(generator.integers(0, 256, (*size, 3), np.uint8)).save(path)
    images = [picture_file(path) for path in paths]
    wanted = tiny_encoder.embed_images([path.read_bytes() for path in paths])
    np.testing.assert_allclose(cache.of(encoder_under_test("tiny", tiny_encoder), images), wanted, atol=1e-6)
    tiny_encoder.save(tmp_path / "mine")
    bf16, fp32 = (
        cache.of(find_encoder(str(tmp_path / "mine"), precision=precision), images) for precision in ("bf16", "fp32")
    )
    np.testing.assert_allclose(fp32, wanted, atol=1e-6)
    assert not np.array_equal(bf16, fp32)
