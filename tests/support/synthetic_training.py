"""Random rows for any method, in place of its tables."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from components.encoders.adapter.encoder import Encoder
from components.training.engine.gradients import Teacher
from components.training.engine.run import Run
from components.training.methods.contract.method import Method, Perturb
from components.training.methods.registry import find_method
from components.training.rows.batches import Batch
from tests.support.params import every_method
from tests.support.toy_training import NumberedSource

WORDS = [
    "red", "blue", "small", "large", "dog", "cat", "boat", "near", "above", "below", "two", "three", "on", "under",
    "grass", "sky", "tree",
]  # fmt: skip
CAUSAL = "causal"
"""Folder of the language model that continues texts, in the folder of the one that encodes them."""
IMAGE_COLUMNS = {"image", "other_image", "neighbour.image"}


def entries() -> list[str]:
    return list(every_method()["methods"])


def find(name: str) -> Method[Any]:
    """The entry's method."""
    given = every_method()["methods"][name]
    method = find_method(given.pop("method", name))
    given.pop("train_data")
    return method.read(given, name)


@dataclass
class Subject:
    """A method on a small encoder, frozen as for training."""

    name: str
    method: Method[Any]
    encoder: Encoder
    extra: nn.Module
    trained: dict[str, nn.Parameter]
    frozen: dict[str, nn.Parameter]
    perturb: Perturb | None = None
    teacher: Teacher | None = None

    def run(self, **options: Any) -> Run:
        """A training run of the method; `options` are the other fields of `Run`."""
        fixed = {"title": self.name, "model": self.encoder.model, "trained": self.trained, "extra": self.extra}
        fixed |= {"perturb": self.perturb, "teacher": self.teacher}
        return Run(**fixed, losses=self.method.objective, **options)


def subject(name: str, base: Encoder, language_model: Path, **changes: Any) -> Subject:
    """The entry `name` of params.yaml on `base`, reproducibly."""
    method = find(name)
    hyper = method.settings
    if hasattr(hyper, "language_model"):
        changes["language_model"] = str(language_model / CAUSAL if method.name == "read_clip" else language_model)
    if hasattr(hyper, "tries"):
        changes["tries"] = 3
    if hyper.matryoshka:
        changes["matryoshka"] = (4, 8)
    method = type(method)(replace(hyper, **changes))
    torch.manual_seed(1)
    kept = copy.deepcopy(base)
    encoder = method.start(base)
    teacher = Teacher.of(kept, encoder.tokenizer) if method.reads_base else None
    extra = method.extra(encoder)
    in_model = method.freeze(encoder.model)
    own = {f"extra.{key}": tensor for key, tensor in extra.named_parameters() if tensor.requires_grad}
    frozen = {key: tensor for key, tensor in encoder.model.named_parameters() if key not in in_model}
    perturb = method.augment and method.augment(encoder)
    return Subject(name, method, encoder, extra, in_model | own, frozen, perturb, teacher)


def batch(found: Subject, rows: Iterable[int], cursor: int = 0) -> Batch:
    """The rows of these numbers; a row's content depends on its number alone."""
    rows = list(rows)
    columns = sorted(found.method.columns)
    tokenizer, size = found.encoder.tokenizer, found.encoder.sidecar.preparation.size
    tokens, lengths, features, pixels = {}, {}, {}, {}
    for place, column in enumerate(columns):
        draws = [np.random.default_rng([row, place]) for row in rows]
        if column not in IMAGE_COLUMNS:
            texts = [" ".join(rng.choice(WORDS, size=rng.integers(2, 9))) for rng in draws]
            tokens[column] = tokenizer(texts)
            lengths[column] = tokenizer.lengths(tokens[column])
        elif found.method.settings.image_tower == "frozen":
            raw = np.stack([rng.normal(size=found.encoder.sidecar.embed_dim) for rng in draws])
            features[column] = torch.from_numpy(raw.astype(np.float32))
        else:
            shape = (3, size, size)
            pixels[column] = torch.from_numpy(np.stack([rng.integers(0, 256, shape, np.uint8) for rng in draws]))
    return Batch([f"row-{row}" for row in rows], tokens, lengths, features, pixels, cursor)


class SyntheticSource(NumberedSource):
    """A rank's share of each batch.

    With `logged` the rows are a query log's: row i weighs i + 1, and rows 2i and 2i + 1 are of one query.
    """

    def __init__(
        self, found: Subject, count: int, size: int, rank: int = 0, ranks: int = 1, logged: bool = False
    ) -> None:
        super().__init__(count, size)
        self.found, self.logged = found, logged
        self.own = slice(rank * size // ranks, (rank + 1) * size // ranks)

    def batch(self, rows: Any, cursor: int) -> Batch:
        made = batch(self.found, rows[self.own].tolist(), cursor)
        if not self.logged:
            return made
        weights = torch.from_numpy((rows + 1) / (rows + 1).mean()).float()
        same = torch.from_numpy((rows[:, None] // 2 == rows // 2) & (rows[:, None] != rows))
        return replace(made, weights=weights[self.own], alike=same[self.own])
