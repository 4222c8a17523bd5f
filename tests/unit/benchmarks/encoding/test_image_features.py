"""Image features: computed once for a tower and a list of pictures, cropped as asked, hostile files refused."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from components.benchmarks.encoding.context import EncoderUnderTest
from components.benchmarks.encoding.image_features import ImageFeatures, known_pictures, picture_key
from components.benchmarks.encoding.pictures import SQUASHED, picture_bytes, picture_file
from components.core.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import normalise
from components.registry.encoder_lookup import encoder_under_test, find_encoder
from tests.support.toy_context import ToyEncoder, colour_image

UNDER_TEST = EncoderUnderTest("toy", ToyEncoder({}), "toy", "tower", 8)
RED = np.full((8, 8, 3), (255, 0, 0), np.uint8)


def test_the_box_alone_is_seen(tmp_path: Path) -> None:
    image = Image.new("RGB", (20, 10), (255, 0, 0))
    image.paste((0, 0, 255), (10, 0, 20, 10))
    image.save(tmp_path / "a.png")
    pictures = [picture_file(tmp_path / "a.png", box) for box in (None, (0, 0, 10, 10), (10, 0, 10, 10))]
    whole, left, right = ImageFeatures(tmp_path / "cache").of(UNDER_TEST, pictures)
    np.testing.assert_allclose(left, (1, 0, 0))
    np.testing.assert_allclose(right, (0, 0, 1))
    assert whole[0] > 0.5
    assert whole[2] > 0.5


def test_features_are_kept_until_tower_or_pictures_change(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.png", ImageFeatures(tmp_path / "cache")
    colour_image(path, (255, 0, 0))
    cache.of(UNDER_TEST, [picture_file(path)])
    kept = list((tmp_path / "cache").glob("*.npy"))
    assert len(kept) == 1
    # What is there is believed: a changed file shows that nothing is computed again.
    np.save(kept[0], np.full((1, 3), 7, np.float32))
    assert cache.of(UNDER_TEST, [picture_file(path)]).tolist() == [[7, 7, 7]]
    assert cache.of(replace(UNDER_TEST, image_tower_sha256="other"), [picture_file(path)]).tolist() == [[1, 0, 0]]
    colour_image(path, (0, 255, 0))
    os.utime(path, (1, 1))
    assert cache.of(UNDER_TEST, [picture_file(path)]).tolist() == [[0, 1, 0]]


class Watched(ToyEncoder):
    """Notes how many pictures it is shown at once."""

    def __init__(self) -> None:
        super().__init__({})
        self.shown: list[int] = []

    def embed_pixels(self, pixels: Tensor) -> Any:
        self.shown.append(len(pixels))
        return super().embed_pixels(pixels)


def test_benchmarks_that_share_pictures_share_their_features(tmp_path: Path) -> None:
    encoder, cache = Watched(), ImageFeatures(tmp_path / "cache", batch_size=2)
    under_test = replace(UNDER_TEST, encoder=encoder)
    red, green, blue = ((255, 0, 0), (0, 255, 0), (0, 0, 255))

    def pictures(benchmark: str, *colours: tuple[int, int, int]) -> list[Any]:
        (tmp_path / benchmark).mkdir()
        paths = [tmp_path / benchmark / f"{number}.png" for number in range(len(colours))]
        for path, colour in zip(paths, colours, strict=True):
            colour_image(path, colour)
        return [picture_file(path) for path in paths]

    assert cache.of(under_test, pictures("one", red, green, red)).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert encoder.shown == [2]
    assert cache.of(under_test, pictures("other", blue, green)).tolist() == [[0, 0, 1], [0, 1, 0]]
    assert encoder.shown == [2, 1]
    # Another tower, or the same at another size, sees for itself.
    for other in (replace(under_test, image_tower_sha256="other"), replace(under_test, image_size=4)):
        cache.of(other, pictures(f"again{other.image_size}", blue, green))
    assert encoder.shown == [2, 1, 2, 2]


def test_a_damaged_file_of_features_is_named(tmp_path: Path) -> None:
    colour_image(tmp_path / "a.png", (255, 0, 0))
    cache = ImageFeatures(tmp_path / "cache")
    cache.of(UNDER_TEST, [picture_file(tmp_path / "a.png")])
    (damaged,) = (tmp_path / "cache").glob("*.db")
    damaged.write_bytes(b"no database at all" * 100)
    for kept in (tmp_path / "cache").glob("*.npy"):
        kept.unlink()
    with pytest.raises(InputError, match=rf"{damaged.name} cannot be used .*: delete the file"):
        cache.of(UNDER_TEST, [picture_file(tmp_path / "a.png")])


def test_16_bits_of_grey_are_scaled_and_floats_refused(tmp_path: Path) -> None:
    cache = ImageFeatures(tmp_path / "cache")
    grey = np.full((8, 8), 30_000, dtype=np.uint16)
    grey[:4] = 0
    Image.fromarray(grey).save(tmp_path / "a.png")
    seen = Watching()
    cache.of(replace(UNDER_TEST, encoder=seen), [picture_file(tmp_path / "a.png")])
    assert set(seen.values) == {0, 117}
    Image.fromarray(np.zeros((8, 8), dtype=np.float32)).save(tmp_path / "b.tif")
    with pytest.raises(InputError, match=r"image b\.tif cannot be decoded \(nothing says"):
        cache.of(UNDER_TEST, [picture_file(tmp_path / "b.tif")])


class Watching(ToyEncoder):
    """Notes the pixels that it is shown."""

    def __init__(self) -> None:
        super().__init__({})
        self.values: list[int] = []

    def embed_pixels(self, pixels: Any) -> Any:
        self.values += pixels.flatten().tolist()
        return super().embed_pixels(pixels)


class Broken(ToyEncoder):
    """Gives pictures whose mean colour is red NaN, as a tower whose weights overflow does."""

    def embed_pixels(self, pixels: Tensor) -> Any:
        found = super().embed_pixels(pixels)
        found[found[:, 0] == 1] = np.nan
        return found


def test_features_that_are_not_finite_are_refused_and_not_kept(tmp_path: Path) -> None:
    for name, colour in {"green": (0, 255, 0), "red": (255, 0, 0)}.items():
        colour_image(tmp_path / f"{name}.png", colour)
    pictures = [picture_file(tmp_path / f"{name}.png") for name in ("green", "red")]
    cache = ImageFeatures(tmp_path / "cache", batch_size=2)
    with pytest.raises(InputError, match=r"encoder 'toy' gives picture 'red\.png' a feature that is not finite"):
        cache.of(replace(UNDER_TEST, encoder=Broken({})), pictures)
    # The same tower, repaired, is believed in nothing that it said before.
    assert cache.of(UNDER_TEST, pictures).tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("damage", ["nan", "short", "no array"])
def test_kept_features_that_are_damaged_are_computed_again(tmp_path: Path, damage: str) -> None:
    colour_image(tmp_path / "a.png", (255, 0, 0))
    cache, pictures = ImageFeatures(tmp_path / "cache"), [picture_file(tmp_path / "a.png")]
    cache.of(UNDER_TEST, pictures)
    (kept,) = (tmp_path / "cache").glob("*.npy")
    if damage == "no array":
        kept.write_bytes(b"\x93NUMPY and no more")
    else:
        np.save(kept, np.full((1, 3) if damage == "nan" else (0, 3), np.nan, np.float32))
    (known,) = (tmp_path / "cache").glob("*.db")
    with sqlite3.connect(known) as connection:
        connection.execute("UPDATE features SET feature = ?", (np.full(3, np.nan, "<f4").tobytes(),))
    connection.close()
    assert cache.of(UNDER_TEST, pictures).tolist() == [[1, 0, 0]]
    with known_pictures(known) as found:
        assert [feature.tolist() for feature in found.find([picture_key(RED)]).values()] == [[1, 0, 0]]


def test_many_pictures_come_in_their_order(tmp_path: Path) -> None:
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)] * 7
    for number, colour in enumerate(colours):
        colour_image(tmp_path / f"{number}.png", colour)
    pictures = [picture_file(tmp_path / f"{number}.png") for number in range(len(colours))]
    found = ImageFeatures(tmp_path / "cache", batch_size=2, threads=3).of(UNDER_TEST, pictures)
    assert found.tolist() == [[channel // 255 for channel in colour] for colour in colours]


def test_bad_pictures_are_named(tmp_path: Path) -> None:
    cache = ImageFeatures(tmp_path / "cache")
    colour_image(tmp_path / "a.png", (255, 0, 0))
    whole = (tmp_path / "a.png").read_bytes()
    for name, content in {"half": whole[:40], "no image": b"GIF89a", "nothing": b""}.items():
        with pytest.raises(InputError, match=f"image {name} cannot be decoded"):
            cache.of(UNDER_TEST, [picture_bytes("good", whole), picture_bytes(name, content)])
    with pytest.raises(InputError, match=r"b\.png is missing"):
        picture_file(tmp_path / "b.png")
    with pytest.raises(InputError, match="'text' has no image tower"):
        cache.of(EncoderUnderTest("text", ToyEncoder({}), "x"), [picture_bytes("good", whole)])


def test_a_real_encoder_sees_what_it_sees_elsewhere(tmp_path: Path, tiny_encoder: Encoder) -> None:
    generator = np.random.default_rng(0)
    images = []
    for number, size in enumerate([(16, 16), (31, 17), (50, 90)]):
        path = tmp_path / f"{number}.png"
        Image.fromarray(generator.integers(0, 256, (size[1], size[0], 3), np.uint8).astype(np.uint8)).save(path)
        images.append(path)
    under_test = encoder_under_test("tiny", tiny_encoder)
    found = ImageFeatures(tmp_path / "cache").of(under_test, [picture_file(path) for path in images])
    wanted = tiny_encoder.embed_images([path.read_bytes() for path in images])
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_features_of_two_precisions_are_kept_apart(tmp_path: Path, tiny_encoder: Encoder) -> None:
    tiny_encoder.save(tmp_path / "mine")
    colour_image(tmp_path / "a.png", (255, 90, 0))
    pictures, cache = [picture_file(tmp_path / "a.png")], ImageFeatures(tmp_path / "cache")
    found = [
        np.array(cache.of(find_encoder(str(tmp_path / "mine"), precision=precision), pictures))
        for precision in ("bf16", "fp32", "bf16")
    ]
    np.testing.assert_array_equal(found[1], tiny_encoder.embed_images([(tmp_path / "a.png").read_bytes()]))
    np.testing.assert_array_equal(found[0], found[2])
    assert not np.array_equal(found[0], found[1])
    # One list and one collection of pictures for each.
    assert [len(list((tmp_path / "cache").glob(f"*.{kind}"))) for kind in ("npy", "db")] == [2, 2]


class Shown(ToyEncoder):
    """Keeps the pixels that it is shown."""

    pixels: Tensor

    def embed_pixels(self, pixels: Any) -> Any:
        self.pixels = pixels
        return super().embed_pixels(pixels)


def test_squashed_pictures_are_those_of_torchvisions_transforms(tmp_path: Path) -> None:
    """The transform that SemCLIP's released code writes down in its src/dataset.py."""
    noise = np.random.default_rng(0).integers(0, 256, size=(30, 50, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    theirs = transforms.Compose(
        [transforms.Resize((8, 8)), transforms.ToTensor(), transforms.Normalize(mean=mean, std=deviation)]
    )
    encoder, cache = Shown({}), ImageFeatures(tmp_path / "cache")
    under_test = EncoderUnderTest("toy", encoder, "toy", "tower", 8)
    squashed = cache.of(under_test, [picture_file(tmp_path / "a.png")], preparation=SQUASHED)
    np.testing.assert_allclose(encoder.pixels[0].numpy(), theirs(Image.fromarray(noise)).numpy(), atol=1e-6)
    # The same picture as CLIP sees it has features of its own.
    assert not np.allclose(cache.of(under_test, [picture_file(tmp_path / "a.png")]), squashed)


def test_a_tower_takes_normalised_pixels_as_they_are(tiny_encoder: Encoder) -> None:
    size = tiny_encoder.sidecar.image_size
    pixels = torch.from_numpy(np.random.default_rng(1).integers(0, 256, size=(2, 3, size, size), dtype=np.uint8))
    np.testing.assert_allclose(tiny_encoder.embed_pixels(pixels), tiny_encoder.embed_pixels(normalise(pixels)))
    assert not np.allclose(tiny_encoder.embed_pixels(pixels), tiny_encoder.embed_pixels(pixels / 255.0))
