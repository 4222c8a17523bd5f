"""`prepare` and `embed` killed with SIGKILL at ten moments each: the same bytes in the end, no part done twice."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import yaml
from PIL import Image

from components.core.tables.records import SPLITS
from components.encoders.adapter.encoder import Encoder
from tests.conftest import REPO, TINY
from tests.support.held_stages import wait_until_gone
from tests.support.shard_making import write_tar

SHARDS, IN_SHARD, KILLS = 40, 12, 10
ROWS = {"train": 400, "val": 16, "test": 16}
PART = 16
PATIENCE_S = 240.0
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with pictures of the size of photographs, and its base."""
    folder, rng = tmp_path_factory.mktemp("project"), np.random.default_rng(0)
    for shard in range(SHARDS):
        members = []
        for number in range(IN_SHARD):
            buffer = io.BytesIO()
            noise = rng.integers(0, 255, (60, 80, 3), dtype=np.uint8)
            Image.fromarray(noise).resize((800, 600)).save(buffer, "JPEG")
            key = f"{shard}-{number}"
            members += [(f"{key}.jpg", buffer.getvalue()), (f"{key}.txt", f"picture {key}".encode())]
        write_tar(folder / f"shards/{shard:05d}.tar", members)
    raw = yaml.safe_load((REPO / "params.yaml").read_text("utf-8"))
    raw["prepare"] = {"source": "webdataset", "folder": "shards", "counts": ROWS, "processes": 2}
    raw["embed"] = {"batch_size": 1, "part": PART}
    (folder / "params.yaml").write_text(yaml.safe_dump(raw))
    torch.manual_seed(0)
    Encoder.create("tiny", "tiny", TINY, "test").save(folder / "models/base")
    return folder


def _start(folder: Path, module: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )


def _finish(folder: Path, module: str) -> None:
    stage = _start(folder, module)
    assert stage.wait(PATIENCE_S) == 0, (folder / "log").read_text()


def _parts(state: Path) -> dict[str, int]:
    """The finished parts, each with the inode of its file, which another write would change."""
    files = (path for path in state.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path): path.stat().st_ino for path in files}


def _kill_at(folder: Path, module: str, state: Path, parts: int, whole: bool) -> bool:
    """Kill the stage after so many parts, all of its processes or only the first; False when it had ended."""
    stage = _start(folder, module)
    end = time.monotonic() + PATIENCE_S
    while len(_parts(state)) < parts:
        if stage.poll() is not None:
            assert stage.returncode == 0, (folder / "log").read_text()
            return False
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.002)
    first = psutil.Process(stage.pid)
    members = [first, *first.children(recursive=True)]
    if whole:
        os.killpg(stage.pid, signal.SIGKILL)
    else:
        stage.kill()
    stage.wait(PATIENCE_S)
    wait_until_gone(members)
    return True


@pytest.mark.parametrize(
    ("module", "state", "outputs"),
    [
        ("components.data.prepare", "state/prepare", ("data/pairs", "data/evaluation", "data/leaks")),
        ("components.encoders.embed", "state/embed", ("data/embeddings",)),
    ],
)
def test_killed_at_ten_moments(module: str, state: str, outputs: tuple[str, ...], project: Path) -> None:
    """Forty shards, or 27 parts of embeddings; every other kill ends only the first process, which has children."""

    def contents() -> dict[str, bytes]:
        files = (path for output in outputs for path in (project / output).rglob("*") if path.is_file())
        return {str(path.relative_to(project)): path.read_bytes() for path in files}

    killed = 0
    for kill in range(KILLS):
        before = _parts(project / state)
        killed += _kill_at(project, module, project / state, len(before) + 1, whole=kill % 2 == 0)
        after = _parts(project / state)
        assert {path: after.get(path) for path in before} == before
    assert killed == KILLS
    _finish(project, module)
    found = contents()
    assert {f"data/embeddings/{split}.npy" for split in SPLITS} <= found.keys() or "embed" not in module
    for path in (project / state).rglob("*.parquet"):
        path.unlink()
    _finish(project, module)
    assert contents() == found
