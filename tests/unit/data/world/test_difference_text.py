"""A true difference is true of both pictures' facts, a false one is not, whatever differs and whoever stands first."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from functools import cache

from components.data.world.difference_text import comparison_rows, contrast, difference_text
from components.data.world.lexicon import load_lexicon
from components.data.world.scenes import POSITIONS, Scene, Thing, draw_scenes

Row = tuple[str, ...]


@cache
def _world() -> tuple[dict[str, Scene], tuple[Row, ...]]:
    drawn = draw_scenes(5, {"train": 1, "val": 1, "test": 240})
    scenes = {f"picture {number}": scene for number, (split, scene) in enumerate(drawn) if split == "test"}
    return scenes, tuple(comparison_rows(list(scenes.items()), random.Random(3)))


def _described(text: str, words: Iterable[str]) -> dict[str, str]:
    """Which of `words` describes the picture called `first`, and which the `second`."""
    body = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    found = re.findall(rf"(?<!\w)(?:{body})(?!\w)", text)
    assert len(found) == 2, text
    return dict(zip(sorted(("first", "second"), key=text.index), found, strict=True))


def _size_is_true(text: str, first: Scene, second: Scene) -> bool:
    after, wanted = text.split("larger ", 1)[1], {"larger": "large", "smaller": "small"}
    name = max((name for name in load_lexicon().objects if re.match(rf"{name}\b", after)), key=len)
    things = [thing for scene in (first, second) for thing in (scene.first, scene.second) if thing is not None]
    sizes = [thing.size for thing in things if thing.name == name]
    said = _described(text, ("larger", "smaller"))
    return sizes == [wanted[said["first"]], wanted[said["second"]]]


def _background_is_true(text: str, first: Scene, second: Scene) -> bool:
    return _described(text, load_lexicon().colours) == {"first": first.colour, "second": second.colour}


def _position_is_true(text: str, first: Scene, second: Scene) -> bool:
    return _described(text, POSITIONS) == {"first": first.position, "second": second.position}


def _object_is_true(text: str, first: Scene, second: Scene) -> bool:
    articled = [f"{article} {name}" for name in load_lexicon().objects for article in ("a", "an")]
    shown = {picture: words.split(" ", 1)[1] for picture, words in _described(text, articled).items()}
    here = shown["first"] in first.names and shown["first"] not in second.names
    return here and shown["second"] in second.names and shown["second"] not in first.names


TRUTH = {
    "size": _size_is_true, "background": _background_is_true, "position": _position_is_true, "object": _object_is_true,
}  # fmt: skip


def test_true_differences_are_true_and_false_ones_false() -> None:
    scenes, rows = _world()
    for first, second, true, false, kind, answer in rows:
        assert TRUTH[kind](true, scenes[first], scenes[second]), (true, scenes[first], scenes[second])
        assert not TRUTH[kind](false, scenes[first], scenes[second]), (false, scenes[first], scenes[second])
        assert TRUTH[kind](false, scenes[second], scenes[first]), "the false one is true of the pictures exchanged"
        assert min(true.index("first"), true.index("second")) == true.index(answer)


def test_rows_need_scenes_that_differ() -> None:
    one = Scene("single", "red", Thing("dog", "small"), position="center")
    assert comparison_rows([], random.Random(0)) == []
    assert comparison_rows([("a", one), ("b", one)], random.Random(0)) == []


def test_the_size_of_a_group_is_not_compared() -> None:
    group = Scene("group", "red", Thing("dog", "small"), count="three")
    large = Scene("single", "red", Thing("dog", "large"), position="center")
    small = Scene("single", "red", Thing("dog", "small"), position="center")
    assert contrast("size", large, group, random.Random(0)) is None
    assert contrast("size", large, small, random.Random(0)) == ("dog", "dog")
    assert contrast("size", small, large, random.Random(0)) is None


def test_a_difference_by_hand() -> None:
    texts = {difference_text("background", ("red", "blue"), random.Random(seed), "second") for seed in range(9)}
    frames = (
        "Of the two pictures, the {} is on red and the {} is on blue.",
        "Compared side by side, the {} picture has a red background, the {} has a blue one.",
    )
    expected = {(frame.format("second", "first"), frame.format("first", "second")) for frame in frames}
    assert texts == expected
