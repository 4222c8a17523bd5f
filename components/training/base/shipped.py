"""The base that comes with the repository: trained by `pretrain` (`make base-asset`) and stored in bfloat16.

It is only used with the settings and training pairs of its recipe; otherwise the test split could have its scenes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import save_file

from components.core.settings import Scratch, Settings
from components.core.system.errors import InputError
from components.core.tables.files import atomic_folder, content_hash, file_hash
from components.core.tables.formats import read_record, write_record
from components.core.tables.records import PAIRS
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config, plain_name
from components.encoders.adapter.weights import load_weights

ASSETS = Path(__file__).parent / "assets"
WEIGHTS, RECORD = "encoder.safetensors", "base.json"


class Recipe(BaseModel):
    """Everything that the weights depend on, apart from the code and the processor's rounding."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    architecture_sha256: str
    scratch: Scratch
    seed: int
    captions_sha256: str
    """Hash of the captions of the training split, in their order."""


class ShippedBase(BaseModel):
    """The record next to the shipped weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: Recipe
    precision: str
    data_hashes: dict[str, str]
    weights_sha256: str
    date: str


def recipe_of(settings: Settings, train_pairs: Path) -> Recipe:
    """The recipe of `base.scratch` on these pairs."""
    base = settings.base
    if base.scratch is None:
        raise InputError("source 'shipped' needs `scratch`, the recipe of the shipped base: restore that block")
    captions = PAIRS.read(train_pairs, ["caption"])["caption"].to_pylist()
    return Recipe(
        model=base.model,
        architecture_sha256=content_hash(repr(sorted(model_config(base.model).items()))),
        scratch=base.scratch,
        seed=settings.train.seed,
        captions_sha256=content_hash(*captions),
    )


def read_shipped(model: str, assets: Path = ASSETS) -> ShippedBase:
    """The record of the shipped base of a model; raises InputError if there is none or it is damaged."""
    fix = "set base.source to scratch to train one, or restore the file with git"
    return read_record(ShippedBase, assets / plain_name(model) / RECORD, fix)


def shipped_encoder(settings: Settings, train_pairs: Path, assets: Path = ASSETS) -> Encoder:
    """The shipped base in float32; raises InputError if there is none, it is damaged or its recipe differs."""
    record = read_shipped(settings.base.model, assets)
    wanted, recipe = recipe_of(settings, train_pairs).model_dump(), record.recipe.model_dump()
    if different := [name for name in wanted if wanted[name] != recipe[name]]:
        raise InputError(
            f"the shipped base was trained with another recipe ({', '.join(different)}): set base.source to scratch"
        )
    name = plain_name(settings.base.model)
    weights = assets / name / WEIGHTS
    encoder = Encoder.create("base", name, model_config(settings.base.model), "clip")
    load_weights(encoder.model, weights)
    if file_hash(weights) != record.weights_sha256:
        raise InputError(f"{weights} is not the file that {RECORD} describes: restore it with git")
    encoder.sidecar = encoder.sidecar.model_copy(update={"data_hashes": record.data_hashes})
    return encoder


def write_shipped(encoder: Encoder, settings: Settings, train_pairs: Path, assets: Path = ASSETS) -> None:
    """Write an encoder that `pretrain` trained with these settings, rounded to bfloat16, and its record."""
    recipe = recipe_of(settings, train_pairs)
    with atomic_folder(assets / plain_name(settings.base.model)) as folder:
        tensors = {name: tensor.contiguous() for name, tensor in encoder.model.state_dict().items()}
        save_file(
            {name: value.to(torch.bfloat16) if value.is_floating_point() else value for name, value in tensors.items()},
            folder / WEIGHTS,
        )
        record = ShippedBase(
            recipe=recipe,
            precision=settings.train.precision,
            data_hashes=encoder.sidecar.data_hashes,
            weights_sha256=file_hash(folder / WEIGHTS),
            date=datetime.now(UTC).date().isoformat(),
        )
        write_record(folder / RECORD, record)
