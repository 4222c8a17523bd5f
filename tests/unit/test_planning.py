"""What would run and why, before anything runs, in a checkout where no stage has ever run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from components.cli import app
from components.errors import InputError
from components.planning import Planned, plan
from components.stage_graph import changes, read_graph
from tests.support.dvc_project import make_project

STAGES = {"prepare": [], "train@a": ["prepare"], "train@b": ["prepare"], "compare": ["train@a", "train@b"]}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_project(tmp_path, STAGES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _repro(*targets: str) -> None:
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q", *targets], check=True, env={**os.environ})


def test_a_new_checkout_is_planned_whole(project: Path) -> None:
    planned = plan(["compare"])
    assert {one.stage for one in planned} == set(STAGES)
    first = planned[0]
    assert (first.stage, first.state) == ("prepare", "runs")
    assert "out/prepare.txt deleted" in first.why
    assert planned[-1] == Planned("compare", "runs after others", "train@a")
    assert {one.why for one in planned[1:3]} == {"prepare"}
    assert not (project / "ran.txt").exists()


def test_only_what_changed_and_what_follows_would_run(project: Path) -> None:
    _repro("compare")
    assert {one.state for one in plan(["compare"])} == {"up to date"}
    (project / "out" / "train@a.txt").unlink()
    states = {one.stage: (one.state, one.why) for one in plan(["compare"])}
    assert states == {
        "prepare": ("up to date", ""),
        "train@a": ("runs", "out/train@a.txt deleted"),
        "train@b": ("up to date", ""),
        "compare": ("runs after others", "train@a"),
    }
    assert [one.stage for one in plan(["train@b"])] == ["prepare", "train@b"]


def test_settings_are_named(project: Path) -> None:
    text = (project / "dvc.yaml").read_text()
    (project / "dvc.yaml").write_text(text.replace("  prepare:\n", "  prepare:\n    params: [world.seed]\n"))
    _repro("prepare")
    params = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(params.replace("  seed: 0\n", "  seed: 1\n", 1))
    assert changes(read_graph(), ["prepare"]) == {"prepare": "world.seed modified"}


@pytest.mark.usefixtures("project")
def test_unknown_stage() -> None:
    with pytest.raises(InputError, match="no stage nothing"):
        plan(["nothing"])


def test_the_command_names_missing_data(project: Path) -> None:
    done = CliRunner().invoke(app, ["plan"])
    assert done.exit_code == 0, done.output
    assert "4 of 4 stages would run" in done.output
    params = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(
        params.replace("  source: embedded\n", "  source: folder\n  folder: pictures\n", 1)
    )
    done = CliRunner().invoke(app, ["plan"])
    assert done.exit_code == 1
    assert "missing: prepare.folder pictures is missing: put the images and captions.tsv into pictures" in done.output
