"""The differences that the benchmark writes by rule are true of their scenes, in their order."""

from __future__ import annotations

from benchmarks.differences import _drawn
from components.data.world.description.scenes import Scene, draw_scenes

SCENES = [scene for _, scene in draw_scenes(3, {"train": 200, "val": 0, "test": 0})]
FACTS = [scene.to_json() for scene in SCENES]


def _sizes(scene: Scene) -> dict[str, str]:
    return {thing.name: thing.size for thing in (scene.first, scene.second) if thing is not None}


def test_differences_are_true_in_their_order() -> None:
    count, checked = 400, 0
    for first, second, text in zip(*_drawn(FACTS, count, seed=0), strict=True):
        one, other = SCENES[first], SCENES[second]
        if "behind" in text.casefold():
            assert text.index(one.colour) < text.rindex(other.colour)
            assert one.colour != other.colour
            checked += 1
        elif "larger" in text or "smaller" in text:
            named = [name for name in _sizes(one) if f" {name} " in text and name in _sizes(other)]
            assert any((_sizes(one)[name], _sizes(other)[name]) == ("large", "small") for name in named)
            checked += 1
    assert checked > count / 3
