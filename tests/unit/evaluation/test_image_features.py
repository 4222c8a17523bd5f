"""Image features: computed once for a tower and a list of pictures, cropped as asked, hostile files refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from components.encoders.encoder import Encoder
from components.errors import InputError
from components.evaluation.finding import subject_of
from components.evaluation.image_features import ImageFeatures
from components.evaluation.picture_source import picture_bytes, picture_file
from components.evaluation.subject import Subject
from tests.support.toy_trial import ToyEncoder, colour_image

SUBJECT = Subject("toy", ToyEncoder({}), "toy", "tower", 8)


def test_the_box_alone_is_seen(tmp_path: Path) -> None:
    image = Image.new("RGB", (20, 10), (255, 0, 0))
    image.paste((0, 0, 255), (10, 0, 20, 10))
    image.save(tmp_path / "a.png")
    pictures = [picture_file(tmp_path / "a.png", box) for box in (None, (0, 0, 10, 10), (10, 0, 10, 10))]
    whole, left, right = ImageFeatures(tmp_path / "cache").of(SUBJECT, pictures)
    np.testing.assert_allclose(left, (1, 0, 0))
    np.testing.assert_allclose(right, (0, 0, 1))
    assert whole[0] > 0.5
    assert whole[2] > 0.5


def test_features_are_kept_until_tower_or_pictures_change(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.png", ImageFeatures(tmp_path / "cache")
    colour_image(path, (255, 0, 0))
    cache.of(SUBJECT, [picture_file(path)])
    kept = list((tmp_path / "cache").iterdir())
    assert len(kept) == 1
    # What is there is believed: a changed file shows that nothing is computed again.
    np.save(kept[0], np.full((1, 3), 7, np.float32))
    assert cache.of(SUBJECT, [picture_file(path)]).tolist() == [[7, 7, 7]]
    assert cache.of(replace(SUBJECT, image_tower_sha256="other"), [picture_file(path)]).tolist() == [[1, 0, 0]]
    colour_image(path, (0, 255, 0))
    os.utime(path, (1, 1))
    assert cache.of(SUBJECT, [picture_file(path)]).tolist() == [[0, 1, 0]]


def test_many_pictures_come_in_their_order(tmp_path: Path) -> None:
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)] * 7
    for number, colour in enumerate(colours):
        colour_image(tmp_path / f"{number}.png", colour)
    pictures = [picture_file(tmp_path / f"{number}.png") for number in range(len(colours))]
    found = ImageFeatures(tmp_path / "cache", batch_size=2, threads=3).of(SUBJECT, pictures)
    assert found.tolist() == [[channel // 255 for channel in colour] for colour in colours]


def test_bad_pictures_are_named(tmp_path: Path) -> None:
    cache = ImageFeatures(tmp_path / "cache")
    colour_image(tmp_path / "a.png", (255, 0, 0))
    whole = (tmp_path / "a.png").read_bytes()
    for name, content in {"half": whole[:40], "no image": b"GIF89a", "nothing": b""}.items():
        with pytest.raises(InputError, match=f"image {name} cannot be decoded"):
            cache.of(SUBJECT, [picture_bytes("good", whole), picture_bytes(name, content)])
    with pytest.raises(InputError, match=r"b\.png is missing"):
        picture_file(tmp_path / "b.png")
    with pytest.raises(InputError, match="'text' has no image tower"):
        cache.of(Subject("text", ToyEncoder({}), "x"), [picture_bytes("good", whole)])


def test_a_real_encoder_sees_what_it_sees_elsewhere(tmp_path: Path, tiny_encoder: Encoder) -> None:
    generator = np.random.default_rng(0)
    images = []
    for number, size in enumerate([(16, 16), (31, 17), (50, 90)]):
        path = tmp_path / f"{number}.png"
        Image.fromarray(generator.integers(0, 256, (size[1], size[0], 3), np.uint8).astype(np.uint8)).save(path)
        images.append(path)
    subject = subject_of("tiny", tiny_encoder)
    found = ImageFeatures(tmp_path / "cache").of(subject, [picture_file(path) for path in images])
    wanted = tiny_encoder.embed_images([path.read_bytes() for path in images])
    np.testing.assert_allclose(found, wanted, atol=1e-6)
