"""A tiny base that is trained from nothing, with objects' names as a second lesson, and shipped with its recipe."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from components.core.compute import devices
from components.core.settings import Settings, load_settings
from components.core.system.errors import InputError
from components.core.tables.files import content_hash, file_hash, image_id
from components.core.tables.records import PAIRS
from components.core.tracking import make_client
from components.data.world.alt_text import alt_text
from components.data.world.lexicon import load_lexicon
from components.data.world.scenes import Scene, Thing, draw_scenes
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from components.encoders.embed import run as embed
from components.training.base import fitted
from components.training.base.base import run
from components.training.base.contrastive import PLACES, SHOWN, Naming, scene_labels
from components.training.base.shipped import ASSETS, RECORD, WEIGHTS, read_shipped, shipped_encoder, write_shipped
from components.training.methods.contract.losses import Feature, Features
from tests.conftest import TINY
from tests.support.toy_world import drawing, sentence


def write_pairs(folder: Path, facts: Sequence[str | None] = (None,) * 8, seed: int = 0) -> Path:
    """The table of training pairs with a pair for each of these facts; returns its path."""
    rng = np.random.default_rng(seed)
    ids, images = [f"train-{row}" for row in range(len(facts))], [drawing(rng) for _ in facts]
    columns = {"id": ids, "image_id": ids, "image": images, "caption": [sentence(rng) for _ in ids]}
    PAIRS.write(folder / "train.parquet", {**columns, "facts": list(facts)})
    return folder / "train.parquet"


def scratch_settings(raw: dict[str, Any], folder: Path, **scratch: Any) -> Settings:
    """Settings that train the tiny model from random weights, with checkpoints in `folder`."""
    (folder / "tiny.json").write_text(json.dumps(TINY))
    plan = {"epochs": 1, "batch_size": 4, "lr": 1e-3, "warmup_steps": 1, "weight_decay": 0.1} | scratch
    raw["base"] |= {"source": "scratch", "model": str(folder / "tiny.json"), "scratch": plan}
    raw["train"] |= {"checkpoint_dir": str(folder / "state"), "log_every": 1}
    return Settings.model_validate(raw)


NAMES = list(load_lexicon().objects)
SCENES = [
    Scene("pair", "red", Thing(NAMES[0], "small"), Thing(NAMES[3], "large"), relation="left"),
    Scene("single", "blue", Thing(NAMES[3], "large"), position="center"),
]


def test_labels_are_the_objects_of_drawn_pictures_and_their_places(tmp_path: Path) -> None:
    write_pairs(tmp_path, [scene.to_json() for scene in SCENES])
    labels = scene_labels(tmp_path / "train.parquet")
    assert labels[SHOWN].shape == (2, len(NAMES))
    assert [np.flatnonzero(row).tolist() for row in labels[SHOWN]] == [[0, 3], [3]]
    assert labels[PLACES].tolist() == [[1, 4, 0, 0], [0, 0, 0, 0]]
    write_pairs(tmp_path, [SCENES[0].to_json(), None])
    assert scene_labels(tmp_path / "train.parquet") == {}


def test_losses_are_those_of_shown_objects_and_their_places() -> None:
    torch.manual_seed(0)
    naming, image, caption = Naming(6, 0.5), torch.randn(2, 6), torch.randn(2, 6)
    shown, places = torch.zeros(2, len(NAMES), dtype=torch.long), torch.tensor([[1, 4, 0, 0], [0, 0, 0, 0]])
    shown[0, [0, 3]] = shown[1, 3] = 1
    columns = {"image": Feature(image, 0, 2), "caption": Feature(caption, 0, 2)}
    found = naming(Features(columns, torch.tensor(1.0), naming, labels={SHOWN: shown, PLACES: places}))
    logs = (3 * naming.shown(image)).log_softmax(dim=1)
    assert found["naming"].item() == pytest.approx(-0.5 * ((logs[0, 0] + logs[0, 3]) / 2 + logs[1, 3]).item() / 2)
    for name, raw in (("image", image), ("caption", caption)):
        cosines = F.cosine_similarity(raw[:, None], naming.places[None], dim=2).view(2, 4, -1)
        sides = (math.exp(3) * cosines).log_softmax(dim=2)
        each = [-sides[row, side, places[row, side]].item() for row in range(2) for side in range(4)]
        assert found[f"placing_{name}"].item() == pytest.approx(0.5 * np.mean(each), rel=1e-5)


def test_a_base_learns_names_keeps_only_its_towers_and_logs_the_precision_that_auto_chose(
    raw_params: dict[str, Any], tmp_path: Path, track_in: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    track_in(tmp_path)
    write_pairs(tmp_path, [scene.to_json() for scene in SCENES * 4])
    plan = {"epochs": 40, "batch_size": 8, "lr": 3e-3, "attribute_loss_weight": 1.0}
    raw_params["train"]["precision"] = "auto"
    settings = scratch_settings(raw_params, tmp_path, **plan)
    monkeypatch.setattr(devices, "bf16_is_native", lambda _device: False)
    run(settings, tmp_path / "base", tmp_path)
    run_id = json.loads((tmp_path / "base" / "run.json").read_text("utf-8"))["run_id"]
    for loss in ("loss/naming", "loss/placing_image", "loss/placing_caption"):
        history = [point.value for point in make_client().get_metric_history(run_id, loss)]
        assert len(history) == 40
        assert history[-1] < history[0] / 2
    assert make_client().get_run(run_id).data.params["train.precision"] == "fp32"
    assert Encoder.load(tmp_path / "base").extra == {}


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


def test_loaded_weights_are_float32(trained: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_repositorys_base_has_the_recipe_and_captions_of_params_yaml() -> None:
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
    prepare, seed, counts = settings.prepare, settings.dataset.seed, settings.prepare.counts
    drawn = draw_scenes(seed, {"train": counts.train, "val": counts.val, "test": counts.test})
    captions = [
        alt_text(scene, random.Random(f"caption-{seed}-train-{row}"), prepare.rare_word_share)
        for row, scene in enumerate(scene for split, scene in drawn if split == "train")
    ]
    assert content_hash(*captions) == read_shipped(settings.base.model).recipe.captions_sha256


TOWER = "test_efficientnet.r160_in1k"
MODEL: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"timm_model_name": TOWER, "timm_pool": "avg", "timm_proj": "mlp", "image_size": 64},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
PAINTED = {
    "a dog": (250, 20, 20),
    "a cat": (20, 250, 20),
    "the long sofa": (20, 20, 250),
    "two red hats": (250, 250, 20),
}
"""Four pictures of one colour, each with this caption and one more."""


@pytest.fixture
def project(tmp_path: Path, png: Any, track_in: Callable[[Path], None]) -> Path:
    """A project with pairs in all splits, weights of a tower, and a model file."""
    track_in(tmp_path)
    torch.manual_seed(3)
    save_file(timm.create_model(TOWER).state_dict(), tmp_path / "tower.safetensors")
    (tmp_path / "small.json").write_text(json.dumps(MODEL))
    rows = [
        (png(colour, 64), text) for caption, colour in PAINTED.items() for text in (caption, f"{caption} with a hat")
    ]
    columns: dict[str, list[object]] = {
        "id": [f"pair{row}" for row in range(len(rows))],
        "image_id": [image_id(image) for image, _ in rows],
        "image": [image for image, _ in rows],
        "caption": [caption for _, caption in rows],
        "facts": [None] * len(rows),
    }
    for split in ("train", "val", "test"):
        PAIRS.write(tmp_path / "pairs" / f"{split}.parquet", columns)
    return tmp_path


@pytest.fixture
def chosen(project: Path, raw_params: dict[str, Any], language_folder: Path) -> Settings:
    """Settings that fit the tiny language model to the tiny tower."""
    fit = {"epochs": 40, "batch_size": 4, "lr": 0.005, "projection_lr": 0.02, "warmup_steps": 2, "weight_decay": 0.0}
    base = {"source": "timm", "model": str(project / "small.json"), "file": str(project / "tower.safetensors")}
    raw_params["base"] |= base | {"fit": fit | {"language_model": str(language_folder)}}
    return Settings.model_validate(raw_params)


def test_texts_find_their_pictures_and_the_trunk_stays(project: Path, chosen: Settings) -> None:
    run(chosen, project / "base", project / "pairs")
    encoder = Encoder.load(project / "base")
    assert encoder.sidecar.name == "base"
    table = PAIRS.read(project / "pairs" / "train.parquet").to_pylist()
    images = encoder.embed_images([row["image"] for row in table])
    found = (encoder.embed_texts([row["caption"] for row in table]) @ images.T).argmax(axis=1)
    assert [table[row]["image_id"] for row in found] == [row["image_id"] for row in table]
    torch.manual_seed(3)
    before = timm.create_model(TOWER).state_dict()
    assert all(torch.equal(value, before[key]) for key, value in encoder.model.visual.trunk.state_dict().items())
    embed(chosen, project / "embeddings", project / "pairs", project / "base")


def test_a_killed_stage_resumes(project: Path, chosen: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the second block, the stage resumes there and ends with the same bytes."""
    monkeypatch.setattr(fitted, "_BLOCK", 4)
    run(chosen, project / "whole", project / "pairs")
    for block in (chosen.train.checkpoint_dir / "trunk").glob("*/*.npy"):
        block.unlink()
    compute, sizes = Encoder.image_features, list[int]()

    def counting(self: Encoder, images: list[bytes], *args: Any, **named: Any) -> Any:
        sizes.append(len(images))
        if len(sizes) == 2:
            raise KeyboardInterrupt
        return compute(self, images, *args, **named)

    monkeypatch.setattr(Encoder, "image_features", counting)
    with pytest.raises(KeyboardInterrupt):
        run(chosen, project / "base", project / "pairs")
    run(chosen, project / "base", project / "pairs")
    assert sizes == [2, 2, 2]
    for name in ("encoder.safetensors", "encoder.json"):
        assert (project / "base" / name).read_bytes() == (project / "whole" / name).read_bytes()
    run(chosen, project / "base", project / "pairs")
    assert len(sizes) == 3


def test_new_parts_learn_at_a_rate_of_their_own_and_checkpoints_belong_to_the_language_models_files(
    project: Path, chosen: Settings, language_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []

    def stop(*arguments: Any) -> None:
        calls.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(fitted, "contrast", stop)
    own = project / "language"
    shutil.copytree(language_folder, own)
    fit = chosen.base.fit
    assert fit is not None
    changed = chosen.base.model_copy(update={"fit": fit.model_copy(update={"language_model": str(own)})})
    for content in ("", " ", " "):
        (own / "config.json").write_text((own / "config.json").read_text() + content)
        with pytest.raises(KeyboardInterrupt):
            run(chosen.model_copy(update={"base": changed}), project / "base", project / "pairs")
    first, second, third = (depends_on for *_, depends_on, _ in calls)
    assert first != second
    assert second != third
    model, *_, rates = calls[0]
    for name, _ in model.named_parameters():
        factors = [factor for start, factor in rates.items() if name.startswith(start)]
        assert factors == ([] if name.startswith("text.language.") else [pytest.approx(4.0)]), name


def test_a_cut_block_and_a_tower_without_a_projection_are_refused(project: Path, chosen: Settings) -> None:
    run(chosen, project / "base", project / "pairs")
    (block,) = (chosen.train.checkpoint_dir / "trunk").glob("*/*.npy")
    block.write_bytes(block.read_bytes()[:100])
    with pytest.raises(InputError, match=rf"{block.name} is damaged .*: delete it"):
        run(chosen, project / "base", project / "pairs")
    (project / "small.json").write_text(json.dumps(MODEL | {"vision_cfg": MODEL["vision_cfg"] | {"timm_proj": "none"}}))
    with pytest.raises(InputError, match="has no projection to fit: set timm_proj"):
        run(chosen, project / "base", project / "pairs")
