"""Files that run code, fill the memory or write outside their folder are refused by name, without any effect."""

from __future__ import annotations

import io
import pickle
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from components.core.tables.records import PAIRS
from components.encoders.adapter.language_tower import packaged_model
from tests.conftest import REPO
from tests.support.shard_making import sound, write_tar
from tests.support.stage_project import make_trainable, write_params
from tests.support.tiny_language_model import save_tiny_language_model
from tests.support.warm_stages import Ended, run_stage
from tests.unit.encoders.adapter.test_encoder import Payload

pytestmark = pytest.mark.integration
PREPARE, BASE, TRAIN = "components.data.prepare", "components.training.base.base", "components.training.train"
SYNTHESIZE = "components.captions.synthesize"


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """A file that hostile inputs would make; it must not exist at the end."""
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


def _assert_refused(ended: Ended, *words: str) -> None:
    """The stage failed with one line that holds all these words."""
    assert ended.code == 1, ended.errors
    assert "Traceback" not in ended.errors
    (line,) = ended.complaints
    for word in words:
        assert word in line


def _pickled(path: Path, mark: Path) -> Path:
    """A file that makes `mark` when it is unpickled."""
    content = {"state_dict": {"logit_scale": torch.zeros(())}, "extra": Payload(mark)}
    path.write_bytes(pickle.dumps(content, protocol=2)) if path.suffix == ".safetensors" else torch.save(content, path)
    return path


def test_the_payload_runs_when_it_is_unpickled(tmp_path: Path) -> None:
    for name in ("one.pt", "one.safetensors"):
        path, mark = _pickled(tmp_path / name, tmp_path / f"{name}.ran"), tmp_path / f"{name}.ran"
        torch.load(path, weights_only=False) if name == "one.pt" else pickle.loads(path.read_bytes())
        assert mark.exists()


@pytest.mark.parametrize("name", ["hostile.pt", "hostile.safetensors"])
def test_a_checkpoint_that_is_a_pickle(name: str, mark: Path, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    file = _pickled(tmp_path / name, mark)
    raw_params["base"] |= {"source": "file", "model": "ViT-B-32", "file": str(file)}
    write_params(tmp_path / "project", raw_params)
    _assert_refused(run_stage(tmp_path / "project", BASE), str(file), "convert" if "safe" not in name else "fetch")
    assert not (tmp_path / "project" / "models").exists()


def test_an_encoder_whose_weights_are_a_pickle(mark: Path, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    project = tmp_path / "project"
    make_trainable(project)
    raw_params["train"] = {"checkpoint_dir": "state/train"}
    write_params(project, raw_params)
    file = _pickled(project / "models" / "base" / "encoder.safetensors", mark)
    ended = run_stage(project, TRAIN, "--method", "paraclip")
    _assert_refused(ended, str(file.relative_to(project)), "make it again")


def test_a_language_model_that_is_a_pickle(mark: Path, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    project, model = tmp_path / "project", tmp_path / "model"
    make_trainable(project)
    shutil.copytree(packaged_model(), model)
    (model / "model.safetensors").unlink()
    _pickled(model / "pytorch_model.bin", mark)
    raw_params["train"] = {"checkpoint_dir": "state/train", "validation_images": 12}
    raw_params["methods"]["lm_finetuned"] |= {"language_model": str(model), "batch_size": 16}
    write_params(project, raw_params)
    _assert_refused(run_stage(project, TRAIN, "--method", "lm_finetuned"), str(model), "safetensors")


def test_an_adapter_that_is_a_pickle(mark: Path, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    project, adapter = tmp_path / "project", tmp_path / "adapter"
    shutil.copytree(REPO / "components" / "captions" / "assets" / "student", adapter)
    file = _pickled(adapter / "adapter_model.safetensors", mark)
    task = {"table": "rewrites", "input": "data/pairs/train.parquet"}
    base = save_tiny_language_model(tmp_path / "base")
    models = {"hostile": {"engine": "local", "adapter": str(adapter), "base": str(base)}}
    raw_params["synthesize"] |= {
        "llms": models,
        "default_llm": "hostile",
        "cached_answers": None,
        "tasks": {"rewrite": task},
    }
    write_params(project, raw_params)
    rows = {"id": ["a", "b"], "image_id": ["i", "j"], "image": [b"i"] * 2, "caption": ["a dog", "a cat"]}
    rows["facts"] = [None] * 2
    PAIRS.write(project / "data" / "pairs" / "train.parquet", rows)
    _assert_refused(run_stage(project, SYNTHESIZE, "--task", "rewrite"), str(file), "train it again")
    assert not (project / "data" / "captions").exists()


@pytest.mark.parametrize("module", [PREPARE, TRAIN])
def test_settings_with_a_tag_that_runs_a_command(module: str, mark: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    text = (REPO / "params.yaml").read_text("utf-8")
    assert "  name: synthetic" in text
    hostile = text.replace("name: synthetic", f"name: !!python/object/apply:os.system ['touch {mark}']", 1)
    (project / "params.yaml").write_text(hostile)
    ended = run_stage(project, module, *(["--method", "paraclip"] if module == TRAIN else []))
    _assert_refused(ended, "params.yaml", "python/object/apply:os.system", "line ")


def _bomb() -> bytes:
    """A hundred megapixels in twelve kilobytes."""
    stream = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(stream, "PNG")
    return stream.getvalue()


def _cut() -> bytes:
    """The first half of a JPEG."""
    Image.effect_noise((64, 64), 90).convert("RGB").save(stream := io.BytesIO(), "JPEG")
    return stream.getvalue()[: stream.tell() // 2]


def _link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def test_shards_with_hostile_members(tmp_path: Path, raw_params: dict[str, Any]) -> None:
    project, secret = tmp_path / "project", tmp_path / "secret.txt"
    secret.write_text("a caption that does not belong to the shard")
    good = [member for number in range(40) for member in sound(f"good{number:03}", number)]
    hostile = [
        *[(f"../up.{ending}", content) for (_, content), ending in zip(sound("", 1), ("png", "txt"), strict=True)],
        *[(f"{tmp_path}/root.{ending}", data) for (_, data), ending in zip(sound("", 2), ("png", "txt"), strict=True)],
        sound("linked", 3)[0],
        (_link("linked.txt", str(secret)), b""),
        ("bomb.png", _bomb()),
        ("bomb.txt", b"a bomb"),
        ("cut.jpg", _cut()),
        ("cut.txt", b"half of a picture"),
    ]
    write_tar(tmp_path / "shards" / "000.tar", [*good, *hostile])
    make_trainable(project)
    shards = {"urls": f"{tmp_path}/shards/000.tar", "columns": {"caption": "txt"}, "samples_per_epoch": 48}
    train = {"checkpoint_dir": "state/train", "validation_images": 0, "validate_every": None, "shards": shards}
    entry = {"method": "clip_scratch", "train_data": "data", "batch_size": 8, "epochs": 1, "warmup_steps": 1}
    raw_params |= {"train": train, "methods": {"scratch": entry}}
    raw_params["compare_encoders"] = ["base"]
    write_params(project, raw_params)
    before = {path for path in tmp_path.rglob("*") if project not in path.parents}
    ended = run_stage(project, TRAIN, "--method", "scratch")
    assert ended.code == 0, ended.errors
    assert {path for path in tmp_path.rglob("*") if project not in path.parents} == before
    for key, why in (
        ("'../up'", "unsafe name"),
        (f"'{tmp_path}/root'", "unsafe name"),
        ("'linked'", "not a file"),
        ("'bomb'", "too large"),
        ("'cut'", "broken image"),
    ):
        assert f"sample {key} is left out: {why}" in ended.errors
    assert "good" not in "".join(line for line in ended.errors.splitlines() if "left out" in line)
    with closing(sqlite3.connect(project / "mlruns" / "mlflow.db")) as runs:
        assert runs.execute("SELECT max(value) FROM metrics WHERE key = 'train/lost_samples'").fetchone()[0] >= 5
