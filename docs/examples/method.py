"""Fine-tune a small encoder by any method, on drawn scenes and captions written by rule.

    python docs/examples/method.py negclip     # without a name: which methods there are

A method declares the columns that its losses read: texts, and images, whose features a frozen tower gives.
"""

import random
import sys
from dataclasses import replace

import torch

import cliptune
from components.data.world.drawing import draw
from components.data.world.evaluation_text import plain_query, swapped
from components.data.world.scenes import Scene, draw_scenes
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from components.training.methods.registry import find_method, method_names

BATCH, STEPS = 32, 6
FALSE = {"hard_negative", "negation", "published_negation", "negated_term", "absence", "unit_foil"}
SETTINGS = {"image_tower": "frozen", "lr": 0.001, "batch_size": BATCH, "epochs": 1, "warmup_steps": 0}


def text(column: str, scene: Scene, row: int) -> str:
    """A true description of the scene, or a false one, for columns that need one."""
    shown = swapped(scene, "relation") or replace(scene, colour="gray") if column in FALSE else scene
    return plain_query(shown, random.Random(f"{column}-{row}"))


def column(name: str, scenes: list[Scene]) -> list[str] | list[bytes]:
    """Texts or pictures; the other image of a row is the next scene's."""
    if not name.endswith("image"):
        return [text(name, scene, row) for row, scene in enumerate(scenes)]
    pictures = [draw(scene, str(row)) for row, scene in enumerate(scenes)]
    return pictures if name == "image" else [*pictures[1:], pictures[0]]


def main(name: str) -> list[float]:
    """Train; returns the loss of each step."""
    torch.manual_seed(0)
    method, losses = find_method(name), list[float]()
    columns = method.read(SETTINGS).needs
    scenes = [scene for _, scene in draw_scenes(0, {"train": BATCH * STEPS, "val": 0, "test": 0})]
    pairs = {one: column(one, scenes) for one in {one.removeprefix("neighbour.") for one in columns} | {"image"}}
    base = Encoder.create("base", "cliptune-tiny", model_config("cliptune-tiny"), "clip")
    cliptune.tune(base, pairs, name, report=lambda step: losses.append(sum(step.losses.values())), **SETTINGS)
    print(f"{method.citation}\ncolumns: {', '.join(sorted(columns))}")
    print(f"loss of each step: {', '.join(f'{loss:.3f}' for loss in losses)}")
    return losses


if __name__ == "__main__":
    main(sys.argv[1]) if sys.argv[1:] else print(*method_names(), sep="\n")
