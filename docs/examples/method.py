"""Fine-tune a small encoder by any method, on 32 drawn scenes and captions written by rule.

    python docs/examples/method.py negclip     # without a name: which methods there are

A method declares the columns that its losses read: texts, and images, whose features a frozen tower gave.
"""

import copy
import random
import sys
from collections.abc import Iterator
from dataclasses import replace

import torch

from components.data.world.description.evaluation_text import plain_query, swapped
from components.data.world.description.scenes import Scene, draw_scenes
from components.data.world.drawing import draw
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from components.training.engine.gradients import Teacher
from components.training.engine.loop import fit
from components.training.engine.run import LoopOptions, Run
from components.training.methods.registry import find_method, method_names
from components.training.rows.batches import Batch

ROWS, STEPS = 32, 6
FALSE = {"hard_negative", "negation", "published_negation", "negated_term", "absence", "unit_foil"}


def text(column: str, scene: Scene, row: int) -> str:
    """A true description of the scene, or a false one, for columns that need one."""
    shown = swapped(scene, "relation") or replace(scene, colour="gray") if column in FALSE else scene
    return plain_query(shown, random.Random(f"{column}-{row}"))


class Rows:
    """The same batch at each step."""

    steps_per_epoch = STEPS

    def __init__(self, encoder: Encoder, columns: frozenset[str]) -> None:
        scenes = [scene for split, scene in draw_scenes(0, {"train": ROWS, "val": 0, "test": 0})]
        seen = torch.from_numpy(encoder.image_features([draw(scene, str(row)) for row, scene in enumerate(scenes)]))
        images = {column: seen.roll(int(column != "image"), 0) for column in columns if column.endswith("image")}
        texts = {one: [text(one, scene, row) for row, scene in enumerate(scenes)] for one in columns - images.keys()}
        tokens = {column: encoder.tokenizer(rows) for column, rows in texts.items()}
        lengths = {column: encoder.tokenizer.lengths(rows) for column, rows in tokens.items()}
        self.batch = Batch([str(row) for row in range(ROWS)], tokens, lengths, images, {}, 0)

    def check(self, what: str) -> None:
        """There are always enough rows."""

    def describe(self) -> dict[str, str]:
        """Nothing to compare when a run is resumed."""
        return {}

    def epoch(self, _epoch: int, cursor: int = 0) -> Iterator[Batch]:
        for step in range(cursor, STEPS):
            yield replace(self.batch, cursor=step + 1)


def main(name: str) -> list[float]:
    """Train; returns the loss of each step."""
    torch.manual_seed(0)
    method, losses = find_method(name), list[float]()
    hyper = method.settings({"image_tower": "frozen", "lr": 0.001, "batch_size": ROWS, "epochs": 1, "warmup_steps": 0})
    base = Encoder.create("base", "cliptune-tiny", model_config("cliptune-tiny"), "clip")
    kept = copy.deepcopy(base)
    encoder = method.start(base, hyper)
    extra = method.extra(encoder, hyper)
    trained = method.freeze(encoder.model, hyper) | {f"extra.{key}": one for key, one in extra.named_parameters()}
    run = Run(
        title=name,
        model=encoder.model,
        trained=trained,
        losses=lambda features: method.objective(features, hyper),
        source=Rows(encoder, method.columns(hyper)),
        optimisation=hyper,
        extra=extra,
        perturb=method.augment and method.augment(encoder, hyper),
        teacher=Teacher.of(kept, encoder.tokenizer) if method.reads_base(hyper) else None,
        options=LoopOptions(log_every=1),
        report=lambda step: losses.append(sum(step.losses.values())),
    )
    fit(run)
    print(f"{method.citation}\ncolumns: {', '.join(sorted(method.columns(hyper)))}; {len(trained)} tensors train")
    print(f"loss of each step: {', '.join(f'{loss:.3f}' for loss in losses)}")
    return losses


if __name__ == "__main__":
    main(sys.argv[1]) if sys.argv[1:] else print(*method_names(), sep="\n")
