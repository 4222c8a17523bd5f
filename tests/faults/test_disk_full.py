"""A full disk ends a stage with one line that names the file; old files stay, and the next run with space finishes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.tables.records import PAIRS
from tests.support.stage_project import make_trainable, write_params
from tests.support.toy_world import drawing
from tests.support.warm_stages import Ended, WarmStage, run_stage

pytestmark = pytest.mark.integration
TRAIN, PREPARE = "components.training.train", "components.data.prepare"
ENTRY = {"method": "paraclip", "train_data": "data/validated", "batch_size": 16, "epochs": 8}
ENTRY |= {"lr": 0.001, "warmup_steps": 1}
LITTLE = 1 << 20
"""Bytes that are left on a full disk: enough for a lock, not for weights."""
SOME = 4 << 20
"""Bytes of the longest file where only that can be limited: MLflow's database fits, weights do not."""


@dataclass(frozen=True)
class SmallDisk:
    """A folder on a file system of its own; `real` is false where none can be mounted.

    There a full disk is a process that may not write long files: see `WarmStage`, argument `longest`.
    """

    folder: Path
    real: bool

    @property
    def reason(self) -> str:
        """The system's error when the disk is full."""
        return "No space left on device" if self.real else "File too large"

    def fill(self, leave: int = 0) -> None:
        if not self.real:
            return
        with self._ballast.open("ab", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(1 << 12))
        os.truncate(self._ballast, max(0, self._ballast.stat().st_size - leave))

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 96 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(folder)]
    real = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    yield SmallDisk(folder, real)
    if real:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


def _assert_one_line(ended: Ended, name: str, disk: SmallDisk) -> None:
    """The stage failed with one line: the file, the reason and the fix."""
    assert ended.code == 1, ended.errors
    (line,) = ended.complaints
    assert name in line
    assert disk.reason in line
    assert "free space" in line
    assert "Traceback" not in ended.errors


def _ended_on_a_full_disk(stage: WarmStage, disk: SmallDisk) -> Ended:
    """The end of a stage while all space that it frees is taken again: SQLite needs only a few pages."""
    while stage.runs:
        disk.fill()
        time.sleep(0.005)
    return stage.wait()


def _trainable(folder: Path, raw: dict[str, Any], state: Path, checkpoint_every: int) -> None:
    make_trainable(folder)
    train = {"checkpoint_dir": str(state), "validate_every": None, "validation_images": 12}
    train["checkpoint_every"] = checkpoint_every
    write_params(folder, raw | {"train": train, "methods": {"paraclip": ENTRY}})


def test_no_room_for_a_checkpoint(disk: SmallDisk, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    project, state = tmp_path / "project", disk.folder / "train"
    _trainable(project, raw_params, state, checkpoint_every=6)
    first = WarmStage(project, TRAIN, "--method", "paraclip")
    while not (found := list(state.glob("paraclip-*/step-*"))):
        assert first.runs, first.wait()
        time.sleep(0.005)
    first.kill()
    run = found[0].parent
    kept = {name: digest for name, digest in _hashes(run).items() if name.startswith("step-")}

    disk.fill(leave=LITTLE)
    second = run_stage(project, TRAIN, "--method", "paraclip", longest=None if disk.real else SOME)
    _assert_one_line(second, str(run / "step-"), disk)
    assert {name: digest for name, digest in _hashes(run).items() if name.startswith("step-")} == kept
    assert not (project / "models" / "paraclip").exists()

    disk.make_room()
    third = run_stage(project, TRAIN, "--method", "paraclip")
    assert third.code == 0, third.errors
    assert (project / "models" / "paraclip" / "encoder.safetensors").is_file()
    assert not run.exists()


def test_no_room_for_the_encoder(disk: SmallDisk, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    project, models = tmp_path / "project", disk.folder / "models"
    _trainable(project, raw_params, tmp_path / "state", checkpoint_every=1000)
    (project / "models").rename(tmp_path / "made")
    models.mkdir()
    (tmp_path / "made" / "base").rename(tmp_path / "base")
    (project / "models").symlink_to(models)
    (models / "base").symlink_to(tmp_path / "base")
    (models / "paraclip").mkdir()
    (models / "paraclip" / "encoder.json").write_text("an earlier one")

    disk.fill()
    full = run_stage(project, TRAIN, "--method", "paraclip", longest=None if disk.real else SOME)
    _assert_one_line(full, "models/paraclip", disk)
    assert _hashes(models / "paraclip") == {"encoder.json": sha256(b"an earlier one").hexdigest()}
    assert not [path for path in models.iterdir() if path.name.startswith(".")]

    disk.make_room()
    assert run_stage(project, TRAIN, "--method", "paraclip").code == 0
    assert set(_hashes(models / "paraclip")) == {"encoder.safetensors", "encoder.json", "run.json"}


def test_a_full_disk_in_a_run_or_before_its_record(disk: SmallDisk, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    if not disk.real:
        pytest.skip("SQLite distinguishes a full disk from a limit on file sizes: this needs the right to mount one")
    project = disk.folder / "project"
    _trainable(project, raw_params, project / "state", checkpoint_every=6)
    training = WarmStage(project, TRAIN, "--method", "paraclip")
    while not list((project / "state").glob("paraclip-*/step-*")):
        assert training.runs, training.wait()
        time.sleep(0.005)
    ended = _ended_on_a_full_disk(training, disk)
    assert ended.code == 1, ended.errors
    (line,) = ended.complaints
    assert "free space" in line

    disk.make_room()
    again = run_stage(project, TRAIN, "--method", "paraclip")
    assert again.code == 0, again.errors
    before = _hashes(project / "models")
    disk.fill()
    full = _ended_on_a_full_disk(WarmStage(project, TRAIN, "--method", "paraclip"), disk)
    _assert_one_line(full, "mlruns/mlflow.db", disk)
    assert _hashes(project / "models") == before
    disk.make_room()
    assert run_stage(project, TRAIN, "--method", "paraclip").code == 0


def test_no_room_for_a_table(disk: SmallDisk, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    project, pictures, rng = disk.folder / "project", tmp_path / "pictures", np.random.default_rng(0)
    pictures.mkdir()
    for number in range(6):
        (pictures / f"{number}.png").write_bytes(drawing(rng, 128))
    counts = {"train": 4, "val": 1, "test": 1}
    raw_params["prepare"] |= {"source": "folder", "folder": str(pictures), "counts": counts}
    write_params(project, raw_params)

    def write_captions(text: str) -> None:
        rows = "".join(f"{number}.png\t{text} {number}\n" for number in range(6))
        (pictures / "captions.tsv").write_text(f"image\tcaption\n{rows}")

    write_captions("an earlier picture")
    # MLflow's store is not on the disk that fills.
    tracking = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    assert run_stage(project, PREPARE, environment=tracking).code == 0
    before = _hashes(project / "data")

    write_captions("a later picture")
    disk.fill()
    full = run_stage(project, PREPARE, environment=tracking, longest=None if disk.real else 1 << 14)
    _assert_one_line(full, "data/pairs", disk)
    assert _hashes(project / "data") == before

    disk.make_room()
    assert run_stage(project, PREPARE, environment=tracking).code == 0
    written = PAIRS.read(project / "data" / "pairs" / "train.parquet")["caption"].to_pylist()
    assert all(caption.startswith("a later picture") for caption in written)
    assert not [name for name in _hashes(project / "data") if "/." in name or name.startswith(".")]
