"""A language model is fitted to a frozen image tower, whose features are computed once, block by block."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.core.tables.records import PAIRS
from components.encoders.adapter.encoder import Encoder
from components.encoders.embed import run as embed
from components.training.base import fitted
from components.training.base.base import run

TOWER = "test_efficientnet.r160_in1k"
MODEL: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"timm_model_name": TOWER, "timm_pool": "avg", "timm_proj": "mlp", "image_size": 64},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
SHOWN = {"a dog": (250, 20, 20), "a cat": (20, 250, 20), "the long sofa": (20, 20, 250), "two red hats": (250, 250, 20)}
"""Four pictures of one colour, each with this caption and one more."""


@pytest.fixture
def project(tmp_path: Path, png: Any, track_in: Callable[[Path], None]) -> Path:
    """A project with pairs in all splits, weights of a tower, and a model file."""
    track_in(tmp_path)
    torch.manual_seed(3)
    save_file(timm.create_model(TOWER).state_dict(), tmp_path / "tower.safetensors")
    (tmp_path / "small.json").write_text(json.dumps(MODEL))
    rows = [(png(colour, 64), text) for caption, colour in SHOWN.items() for text in (caption, f"{caption} with a hat")]
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


def test_a_killed_stage_computes_no_finished_block_again(
    project: Path, chosen: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
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
