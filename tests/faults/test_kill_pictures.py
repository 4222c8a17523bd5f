"""`prepare` and `embed` killed with SIGKILL at ten moments each: the same bytes in the end, and no part done twice."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import yaml
from PIL import Image

from components.core.tables.records import SPLITS
from components.encoders.adapter.encoder import Encoder
from infra.services import runs
from tests.conftest import TINY
from tests.support.shard_making import write_tar

REPO = Path(__file__).parents[2]
SHARDS, IN_SHARD, KILLS = 40, 12, 10
ROWS = {"train": 400, "val": 16, "test": 16}
PART = 16
PATIENCE_S = 240.0
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose pictures are photographs' size, and its base."""
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
    """The parts that are done, each with the inode of its file, which another write would change."""
    found = {}
    for path in state.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            found[str(path)] = path.stat().st_ino
    return found


def _kill_at(folder: Path, module: str, state: Path, parts: int, whole: bool) -> bool:
    """Kill the stage once so many parts are done, all of its processes or the first alone; False when it had ended."""
    stage = _start(folder, module)
    family = psutil.Process(stage.pid)
    end = time.monotonic() + PATIENCE_S
    while len(_parts(state)) < parts:
        if stage.poll() is not None:
            assert stage.returncode == 0, (folder / "log").read_text()
            return False
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.002)
    members = [family, *family.children(recursive=True)]
    if whole:
        os.killpg(stage.pid, signal.SIGKILL)
    else:
        stage.kill()
    stage.wait(PATIENCE_S)
    while any(map(runs, members)):
        assert time.monotonic() < end, f"{members} go on without their parent"
        time.sleep(0.05)
    return True


@pytest.fixture(scope="module", params=["prepare", "embed"])
def stage(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


MODULES = {"prepare": "components.data.prepare", "embed": "components.encoders.embed"}
OUTPUTS = {"prepare": ("data/pairs", "data/evaluation", "data/leaks"), "embed": ("data/embeddings",)}


def _bytes(folder: Path, stage: str) -> Iterator[tuple[str, bytes]]:
    for output in OUTPUTS[stage]:
        for path in sorted(path for path in (folder / output).rglob("*") if path.is_file()):
            yield str(path.relative_to(folder)), path.read_bytes()


def test_killed_at_ten_moments(stage: str, project: Path) -> None:
    """Forty shards, or 27 parts of embeddings; every other kill is of the first process alone, which has children."""
    module, state = MODULES[stage], project / "state" / stage
    killed = 0
    for kill in range(KILLS):
        before = _parts(state)
        killed += _kill_at(project, module, state, len(before) + 1, whole=kill % 2 == 0)
        after = _parts(state)
        assert {path: after.get(path) for path in before} == before
    assert killed == KILLS
    _finish(project, module)
    found = dict(_bytes(project, stage))
    assert {f"data/embeddings/{split}.npy" for split in SPLITS} <= found.keys() or stage == "prepare"
    for path in state.rglob("*.parquet"):
        path.unlink()
    _finish(project, module)
    assert dict(_bytes(project, stage)) == found
