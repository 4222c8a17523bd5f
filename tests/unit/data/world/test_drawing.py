"""Drawings show what the facts say: colour, number, size and place."""

from __future__ import annotations

import io
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from components.data.world.drawing import CANVAS, draw
from components.data.world.lexicon import load_lexicon
from components.data.world.scenes import Scene, Thing

SEEDS = [str(seed) for seed in range(6)]


def _pixels(raw: bytes) -> npt.NDArray[np.uint8]:
    with Image.open(io.BytesIO(raw)) as image:
        assert image.format == "PNG"
        assert image.mode == "RGB"
        assert image.size == (CANVAS, CANVAS)
        return np.asarray(image)


def _drawn(scene: Scene, seed: str) -> npt.NDArray[np.bool_]:
    """Where something other than the background is."""
    background = np.array(load_lexicon().colours[scene.colour], dtype=np.uint8)
    drawn: npt.NDArray[np.bool_] = (_pixels(draw(scene, seed)) != background).any(axis=-1)
    return drawn


def _single(position: str, size: str = "small") -> Scene:
    return Scene("single", "green", Thing("lemon", size), position=position)


def _pair(relation: str) -> Scene:
    return Scene("pair", "blue", Thing("lemon", "large"), Thing("bomb", "large"), relation=relation)


def test_same_seed_same_bytes_and_other_seed_moves() -> None:
    assert draw(_pair("left"), "a") == draw(_pair("left"), "a")
    assert len({draw(_pair("left"), seed) for seed in SEEDS}) > 1


def test_corners_sizes_and_numbers() -> None:
    for seed in SEEDS:
        for vertical, horizontal in product(("top", "bottom"), ("left", "right")):
            y, x = np.nonzero(_drawn(_single(f"{vertical} {horizontal} corner"), seed))
            assert (y.mean() < CANVAS / 2) == (vertical == "top"), (vertical, horizontal, seed)
            assert (x.mean() < CANVAS / 2) == (horizontal == "left"), (vertical, horizontal, seed)
        small, large = (_drawn(_single("center", size), seed).sum() for size in ("small", "large"))
        assert large > 2 * small, seed
        groups = [Scene("group", "gray", Thing("lemon", "small"), count=count) for count in ("two", "three", "four")]
        areas = [_drawn(group, seed).sum() for group in groups]
        assert areas[0] * 1.3 < areas[1] < areas[2], seed
        assert areas[2] == pytest.approx(2 * areas[0], rel=0.1), seed


def _yellow_centre(raw: bytes) -> tuple[float, float]:
    """Centre (x, y) of the lemon, the only yellow thing on blue."""
    pixels = _pixels(raw).astype(int)
    y, x = np.nonzero((pixels[..., 0] > 180) & (pixels[..., 1] > 140) & (pixels[..., 2] < 120))
    return float(x.mean()), float(y.mean())


def test_relations_place_the_first_thing() -> None:
    for seed in SEEDS:
        for axis, (relation, opposite) in enumerate((("left", "right"), ("above", "below"))):
            before = _yellow_centre(draw(_pair(relation), seed))[axis]
            after = _yellow_centre(draw(_pair(opposite), seed))[axis]
            assert before < CANVAS / 2 < after, (relation, seed)


def test_every_colour_is_a_background_and_every_object_has_artwork() -> None:
    for colour, rgb in load_lexicon().colours.items():
        scene = Scene("single", colour, Thing("lemon", "small"), position="center")
        assert tuple(_pixels(draw(scene, "0"))[0, 0]) == rgb, colour
    for name in load_lexicon().objects:
        scene = Scene("single", "purple", Thing(name, "small"), position="center")
        assert _drawn(scene, "0").sum() > 20, name
