"""A CLIP of a few thousand weights with rows made by number, for tests of the engine alone."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.encoders.adapter.architecture import build
from components.training.engine.gradients import Objective, Towers
from components.training.engine.run import LoopOptions, Run
from components.training.methods.contract.losses import Features, info_nce
from components.training.methods.contract.method import Optimisation
from components.training.rows.batches import Batch

CONTEXT, DIM, SIZE, END = 12, 8, 8, 39
CONFIG: dict[str, Any] = {
    "embed_dim": DIM,
    "vision_cfg": {"image_size": SIZE, "layers": 1, "width": 8, "head_width": 8, "patch_size": 4},
    "text_cfg": {"context_length": CONTEXT, "vocab_size": END + 1, "width": 8, "heads": 1, "layers": 1},
}
Names = Sequence[str]
TEXTS, IMAGES = ("caption", "paraphrase"), ("image",)


def toy_model(seed: int = 0) -> Any:
    """The model with random weights, its image tower frozen."""
    torch.manual_seed(seed)
    model = build(CONFIG).eval()
    model.visual.requires_grad_(False)
    return model


def trained(model: Any) -> dict[str, torch.nn.Parameter]:
    return {name: weights for name, weights in model.named_parameters() if weights.requires_grad}


def toy_batch(
    rows: Sequence[int], texts: Names = TEXTS, features: Names = IMAGES, pixels: Names = (), cursor: int = 0
) -> Batch:
    """The rows of these numbers; a row's content depends only on its number and the column."""

    def column(name: str, draw: Callable[[np.random.Generator], Any]) -> Any:
        return np.stack([draw(np.random.default_rng([row, *name.encode()])) for row in rows])

    tokens = {name: column(name, _text) for name in texts}
    lengths = {name: ids.argmax(axis=1) + 1 for name, ids in tokens.items()}
    vectors = {name: column(name, lambda rng: rng.normal(size=DIM).astype(np.float32)) for name in features}
    images = {name: column(name, lambda rng: rng.integers(0, 256, (3, SIZE, SIZE), np.uint8)) for name in pixels}
    tensors = [{name: torch.from_numpy(values) for name, values in drawn.items()} for drawn in (vectors, images)]
    return Batch([f"row-{row}" for row in rows], tokens, lengths, *tensors, cursor)


def _text(rng: np.random.Generator) -> Any:
    length = int(rng.integers(2, CONTEXT + 1))
    ids = np.zeros(CONTEXT, np.int32)
    ids[: length - 1], ids[length - 1] = rng.integers(1, END - 1, length - 1), END
    return ids


def toy_losses(features: Features) -> dict[str, Tensor]:
    return {
        "l1": info_nce(features["image"], features["caption"], features.scale),
        "l2": info_nce(features["caption"], features["paraphrase"], features.scale),
    }


def toy_objective(model: Any, micro_batch: int | None = None, **changes: Any) -> Objective:
    """An objective, of `toy_losses` by default."""
    options = {"towers": Towers(model, "cpu"), "model": model, "extra": torch.nn.Module(), "losses": toy_losses}
    return Objective(**(options | {"micro_batch": micro_batch, "world": World(), "device": "cpu"} | changes))


@dataclass
class NumberedSource:
    """`count` rows in batches of `size`, in another order each epoch; implements `BatchSource`."""

    count: int = 20
    size: int = 4

    @property
    def steps_per_epoch(self) -> int:
        return self.count // self.size

    def check(self, what: str) -> None:
        if not self.steps_per_epoch:
            raise InputError(f"{what} has too few rows")

    def describe(self) -> dict[str, str]:
        return {"kind": "table"}

    def epoch(self, epoch: int, cursor: int = 0) -> Generator[Batch]:
        order = np.random.default_rng(epoch).permutation(self.count)
        for step in range(cursor, self.steps_per_epoch):
            yield self.batch(order[step * self.size : (step + 1) * self.size], step + 1)

    def batch(self, rows: Any, cursor: int) -> Batch:
        """The batch of these numbers of rows."""
        raise NotImplementedError


class ToySource(NumberedSource):
    def batch(self, rows: Any, cursor: int) -> Batch:
        return toy_batch(rows.tolist(), cursor=cursor)


PLAN: dict[str, Any] = {"lr": 0.01, "batch_size": 4, "epochs": 2, "weight_decay": 0.1, "warmup_steps": 2}


def toy_run(
    model: Any, plan: dict[str, Any] | None = None, options: dict[str, Any] | None = None, **changes: Any
) -> Run:
    options: dict[str, Any] = {
        "title": "toy",
        "model": model,
        "trained": trained(model),
        "losses": toy_losses,
        "source": ToySource(),
        "optimisation": Optimisation(**(PLAN | (plan or {}))),
        "options": LoopOptions(**({"checkpoint_every": 3, "log_every": 1} | (options or {}))),
    }
    return Run(**(options | changes))


def weights_of(model: Any) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
