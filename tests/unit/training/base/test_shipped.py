"""The shipped base: float32 weights from a bfloat16 file, only for the recipe that it was trained with."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from components.core.settings import Settings, load_settings
from components.core.system.errors import InputError
from components.core.tables.files import content_hash, file_hash
from components.data.world.alt_text import alt_text
from components.data.world.scenes import draw_scenes
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from components.training.base.base import run
from components.training.base.shipped import ASSETS, RECORD, WEIGHTS, read_shipped, shipped_encoder, write_shipped
from tests.unit.training.base.scratch import scratch_settings, write_pairs


@pytest.fixture
def trained(raw_params: dict[str, Any], tmp_path: Path, track_in: Callable[[Path], None]) -> Settings:
    """Settings of a tiny base that was trained in `tmp_path`, and whose asset is in `tmp_path / "assets"`."""
    track_in(tmp_path)
    write_pairs(tmp_path)
    settings = scratch_settings(raw_params, tmp_path)
    run(settings, tmp_path / "trained", tmp_path)
    shipped = settings.model_copy(update={"base": settings.base.model_copy(update={"source": "shipped"})})
    write_shipped(Encoder.load(tmp_path / "trained"), shipped, tmp_path / "train.parquet", tmp_path / "assets")
    return shipped


def test_the_loaded_weights_are_float32_and_the_sidecar_describes_them(
    trained: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Encoder.load(tmp_path / "trained")
    monkeypatch.setattr("components.training.base.shipped.shipped_encoder.__defaults__", (tmp_path / "assets",))
    run(trained, tmp_path / "base", tmp_path)
    after = Encoder.load(tmp_path / "base")
    for name, value in before.model.state_dict().items():
        rounded = value.to(torch.bfloat16).float() if value.is_floating_point() else value
        loaded = after.model.state_dict()[name]
        assert loaded.dtype == value.dtype
        torch.testing.assert_close(loaded, rounded, rtol=0, atol=0)
    sidecar = after.sidecar
    assert sidecar.weights_sha256 == file_hash(tmp_path / "base" / "encoder.safetensors")
    assert sidecar.weights_sha256 != before.sidecar.weights_sha256
    assert sidecar.image_tower_sha256 == after.image_tower_hash()
    assert (sidecar.name, sidecar.settings["source"]) == ("base", "shipped")
    assert sidecar.data_hashes == before.sidecar.data_hashes


def test_another_recipe_or_damaged_weights_are_refused(trained: Settings, tmp_path: Path) -> None:
    def load(settings: Settings) -> Encoder:
        return shipped_encoder(settings, tmp_path / "train.parquet", tmp_path / "assets")

    load(trained)
    base, scratch = trained.base, trained.base.scratch
    assert scratch is not None
    faster = scratch.model_copy(update={"lr": 1.0})
    cases = {
        r"another recipe \(seed\): set base\.source": {"train": trained.train.model_copy(update={"seed": 1})},
        r"another recipe \(scratch\)": {"base": base.model_copy(update={"scratch": faster})},
        r"needs `scratch`": {"base": base.model_copy(update={"scratch": None})},
        r"base\.json is missing: set base\.source to scratch": {"base": base.model_copy(update={"model": "ViT-B-32"})},
    }
    for message, blocks in cases.items():
        with pytest.raises(InputError, match=message):
            load(trained.model_copy(update=blocks))
    write_pairs(tmp_path, seed=1)
    with pytest.raises(InputError, match=r"another recipe \(captions_sha256\)"):
        load(trained)
    write_pairs(tmp_path, seed=0)
    weights = tmp_path / "assets" / "tiny" / WEIGHTS
    save_file({name: value + 1 for name, value in load_file(weights).items()}, weights)
    with pytest.raises(InputError, match=r"is not the file that base\.json describes"):
        load(trained)


def test_the_repositorys_base_has_the_recipe_of_params_yaml() -> None:
    settings = load_settings(ASSETS.parents[3] / "params.yaml")
    assert settings.base.source == "shipped"
    record, folder = read_shipped(settings.base.model), ASSETS / settings.base.model
    recipe = record.recipe
    expected = settings.base.model, settings.base.scratch, settings.train.seed
    assert (recipe.model, recipe.scratch, recipe.seed) == expected
    assert recipe.architecture_sha256 == content_hash(repr(sorted(model_config(settings.base.model).items())))
    assert record.weights_sha256 == file_hash(folder / WEIGHTS)
    assert {value.dtype for value in load_file(folder / WEIGHTS).values()} == {torch.bfloat16}
    assert sum(file.stat().st_size for file in folder.iterdir()) < 16_000_000
    assert {file.name for file in folder.iterdir()} == {WEIGHTS, RECORD}


def test_the_repositorys_base_was_trained_on_the_captions_that_prepare_writes() -> None:
    settings = load_settings(ASSETS.parents[3] / "params.yaml")
    prepare, seed, counts = settings.prepare, settings.dataset.seed, settings.prepare.counts
    drawn = draw_scenes(seed, {"train": counts.train, "val": counts.val, "test": counts.test})
    captions = [
        alt_text(scene, random.Random(f"caption-{seed}-train-{row}"), prepare.rare_word_share)
        for row, scene in enumerate(scene for split, scene in drawn if split == "train")
    ]
    assert content_hash(*captions) == read_shipped(settings.base.model).recipe.captions_sha256
