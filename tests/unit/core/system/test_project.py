"""Commands work from any folder of the project, on what the user typed there."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from components.captions.generating.store import GenerationStore
from components.cli import app
from components.core.system.project import find_root, start
from components.encoders.adapter.encoder import Encoder
from components.registry import decision as records
from components.registry.decision import Decision
from tests.support.params import copy_profiles
from tests.support.store_rows import replies, requests

REPO = Path(__file__).parents[4]


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder two levels below a project's, in which we are; returns the project's."""
    shutil.copy(REPO / "params.yaml", tmp_path)
    copy_profiles(tmp_path)
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "notes" / "deep")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def _output(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_the_nearest_params_yaml_marks_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "outer" / "inner" / "folder"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    for command in ("history", "profile list", "plan", "report", "profile apply toy"):
        assert "run the command in the project's folder, or below it" in _output(*command.split(), code=1), command
    assert find_root(inner) == inner
    for root in (tmp_path / "outer", tmp_path / "outer" / "inner"):
        (root / "params.yaml").touch()
        assert find_root(inner) == root


def test_files_of_the_project_and_of_the_current_folder_are_found(below: Path, tiny_encoder: Encoder) -> None:
    assert subprocess.run(["git", "rev-parse"], capture_output=True, check=False).returncode != 0
    assert "toy" in _output("profile", "list")
    assert "+  name: toy" in _output("profile", "apply", "toy", "--diff")
    assert "name: toy" in (below / "params.yaml").read_text()
    assert not Path("params.yaml").exists()
    decision = Decision(
        outcome="refused", model="text-encoder", encoder="paraclip", encoder_sha256="abc", against="base",
        tracking_uri="", fingerprint="", time=records.now(),
    )  # fmt: skip
    records.save(decision, below / records.RECORDS)
    assert "paraclip" in _output("history")
    GenerationStore(f"sqlite:///{below}/state/generations.db").add(replies(requests(2)))
    assert "wrote 2 answers" in _output("answers", "export", "all.parquet")
    assert Path("all.parquet").is_file()
    assert "2 new answers" in _output("answers", "import", "all.parquet", "--store", f"sqlite:///{below}/other.db")
    assert "is missing" in _output("answers", "import", "../all.parquet", code=1)
    tiny_encoder.save(Path("saved"))
    tiny_encoder.save(below / "models" / "mine")
    for encoder, output in (("saved", "exported"), ("mine", "../exported")):
        _output("export", "--encoder", encoder, "--format", "open_clip", "--output", output)
        assert (below / "notes" / "deep" / output / "README.md").is_file()


def test_a_stage_writes_into_the_project(below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["student"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("components.captions.students.students", run_name="__main__")
    assert ended.value.code == 0
    assert (below / "models" / "students").is_dir()
    assert not list(Path.cwd().iterdir())


def test_help_and_unknown_options_start_no_stage(
    below: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stage in ("data.prepare", "training.base.base", "encoders.embed", "captions.validation.validate"):
        for option, message in (("--help", "Usage: "), ("--hepl", "No such option: --hepl")):
            monkeypatch.setattr(sys, "argv", [stage, option])
            with pytest.raises(SystemExit):
                start(import_module(f"components.{stage}").main)
            output = "".join(capsys.readouterr())
            assert message in output, stage
            assert "bool" not in output, stage
            assert not (below / "data").exists(), stage


_GROWTH = """
from pathlib import Path
import numpy as np
from components.core.system.project import start

def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def main() -> None:
    before, block = memory(), np.ones(1 << 25)
    del block
    print(memory() - before)

{call}
"""


@pytest.mark.parametrize(("call", "kept"), [("start(main)", True), ("main()", False)])
def test_a_stage_keeps_freed_memory(call: str, kept: bool) -> None:
    shown = subprocess.run([sys.executable, "-c", _GROWTH.format(call=call)], cwd=REPO, capture_output=True, check=True)
    assert (int(shown.stdout) > 200e6) is kept
