"""Pictures of one colour each, captions that name it, and a method's entry that learns them in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.shard_making import encoded

COLOURS = {
    **{"red": (220, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 220), "yellow": (230, 230, 20)},
    **{"white": (245, 245, 245), "black": (10, 10, 10), "pink": (240, 130, 190), "brown": (120, 70, 20)},
}
EACH = 30
"""Images of a colour."""
ENTRY = {
    **{"method": "caption_ft", "train_data": "data/pairs/train.parquet", "scope": "tower", "temperature": 0.1},
    **{"lr": 0.003, "batch_size": 16, "epochs": 12},
}
Shown = Mapping[str, tuple[bytes, list[str]]]
"""Name -> encoded picture and its captions."""


def shown_squares(each: int = EACH) -> Shown:
    """Noisy squares with two captions each, `each` of every colour."""
    rng, names, found = np.random.default_rng(0), list(COLOURS), {}
    for number in range(each * len(names)):
        name = names[number % len(names)]
        pixels = np.clip(np.array(COLOURS[name]) + rng.normal(0, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
        captions = [f"{name} square", f"something {name} number {number}"]
        found[f"{number:03d}.png"] = encoded(Image.fromarray(pixels)), captions
    return found


def write_folder(folder: Path, shown: Shown) -> None:
    folder.mkdir(parents=True)
    for name, (raw, _) in shown.items():
        (folder / name).write_bytes(raw)
    lines = [f'"{name}","{caption}"' for name, (_, captions) in shown.items() for caption in captions]
    (folder / "captions.csv").write_text("\n".join(["image,caption", *lines]) + "\n")
