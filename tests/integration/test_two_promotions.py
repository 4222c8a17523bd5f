"""Of two simultaneous promotions by two processes with different candidates exactly one wins.

Projects that share an MLflow server share no lock: there the second promotion runs after the first, and finds that the
champion has changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tracking import make_client
from components.encoders.adapter.encoder import Encoder
from components.registry.champion import rollback
from components.registry.model import CHAMPION, find_alias
from components.registry.promotion import promote
from tests.conftest import REPO
from tests.support.mlflow_servers import tracking_server
from tests.support.ports import free_ports
from tests.support.registry_project import Project, make_project
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

MODEL = "text-encoder"
_PATIENCE = 900.0


@pytest.fixture(params=["sqlite", "server"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty MLflow store."""
    sqlite = f"sqlite:///{tmp_path / 'mlflow.db'}"
    if request.param == "server":
        with tracking_server(free_ports(1)[0], tmp_path / "server", sqlite) as address:
            yield address
    else:
        yield sqlite


@pytest.fixture
def project(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, tiny_encoder: Encoder
) -> Project:
    """A project with two candidates that beat the base, and neither of them the other."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    made = make_project(settings, tiny_encoder.sidecar.architecture)
    made.add("paraclip", 2, 0.5)
    made.add("other", 3, 0.5)
    return made


def _checkout(candidate: str, folder: Path, raw: dict[str, Any]) -> Path:
    """A copy of the project that proposes `candidate`."""
    shutil.copytree(Path(), folder, ignore=shutil.ignore_patterns("mlruns"))
    (folder / "params.yaml").write_text(yaml.safe_dump(raw | {"compare_encoders": ["base", candidate]}))
    return folder


def _promoting(folder: Path, go: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.promoting", str(go), str(folder / "ready")]
    environment = os.environ | {"PYTHONPATH": str(REPO)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _decision(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 0, errors[-3000:]
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def test_one_wins_the_other_says_why(project: Project, store: str, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    folders = [_checkout(name, tmp_path / name, raw_params) for name in ("paraclip", "other")]
    processes = [_promoting(folder, folder / "go") for folder in folders]
    for folder, process in zip(folders, processes, strict=True):
        wait_until(
            lambda folder=folder, process=process: (folder / "ready").exists() or process.poll() is not None, _PATIENCE
        )
        assert process.poll() is None, f"the promotion did not reach its lock: {process.communicate()[1][-3000:]}"
    decisions = []
    for folder, process in zip(folders, processes, strict=True):
        (folder / "go").touch()
        if store.startswith("http"):
            decisions.append(_decision(process))
    decisions = decisions or [_decision(process) for process in processes]
    won, lost = sorted(decisions, key=lambda found: found["outcome"])
    assert (won["outcome"], lost["outcome"]) == ("promoted", "refused")
    champion = find_alias(make_client(), MODEL, CHAMPION)
    assert champion is not None
    assert (str(champion.version), champion.tags["encoder"]) == (won["version"], won["encoder"])
    assert len(make_client().search_model_versions(f"name = '{MODEL}'")) == 1
    assert [rule["name"] for rule in lost["rules"] if not rule["passed"]] == ["alone"]
    assert lost["rules"][-1]["reason"].startswith("another p")
    # In one checkout it would hide the record of the one that won.
    assert not (Path("..") / lost["encoder"] / "reports" / "promotion").exists()


_HOLD = """
import time
from components.registry.champion import promotion_lock
with promotion_lock("text-encoder"):
    print("held", flush=True)
    time.sleep(1200)
"""


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_killed_promotion_releases_its_lock(project: Project) -> None:
    promote(project.settings)
    project.add("paraclip", 4, 0.6)
    assert promote(project.settings).outcome == "promoted"
    environment = os.environ | {"PYTHONPATH": str(REPO)}
    process = subprocess.Popen([sys.executable, "-c", _HOLD], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(InputError, match="another process is promoting or rolling back text-encoder"):
        rollback(project.settings)
    process.kill()
    process.wait()
    assert rollback(project.settings).outcome == "rolled back"
