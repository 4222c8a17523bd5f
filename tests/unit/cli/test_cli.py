"""The command line: what it prints, what it leaves alone, how it starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from components.cli import app
from components.registry import decision as records
from components.registry.decision import Decision, Rule
from components.registry.standing import fingerprint
from components.settings import Settings

REPO = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(REPO / "params.yaml", tmp_path)
    shutil.copytree(REPO / "infra" / "profiles", tmp_path / "infra" / "profiles")
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "mlflow.db").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def _decide(settings: Settings, outcome: records.Outcome) -> Decision:
    rules = (Rule(name="primary", passed=outcome == "promoted", reason="gain +0.1"),)
    decision = Decision(
        outcome=outcome,
        model="text-encoder",
        encoder="paraclip",
        encoder_sha256="abc",
        against="base",
        rules=rules,
        version="1" if outcome == "promoted" else "",
        tracking_uri="",
        fingerprint=fingerprint(settings),
        time=records.now(),
    )
    records.save(decision)
    return decision


def _output(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize(("outcome", "line"), [("promoted", "already champion"), ("refused", "already refused")])
def test_standing_decision_is_printed_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, outcome: records.Outcome, line: str
) -> None:
    _decide(settings, outcome)
    monkeypatch.setitem(sys.modules, "components.registry.promotion", None)
    output = _output("promote")
    assert output.splitlines()[-1].startswith(f"{line}: paraclip")
    assert "reports/promotion/latest.md" in output.splitlines()[-1]
    assert "gain +0.1" in output
    assert len(records.history()) == 1


def test_promote_without_results_is_one_line() -> None:
    output = _output("promote", code=1)
    assert output.count("\n") == 1
    assert output.startswith("error: reports/metrics/paraclip.json is missing")


def test_history_lists_decisions(settings: Settings) -> None:
    assert "no decisions yet" in _output("history")
    _decide(settings, "refused")
    _decide(settings, "promoted")
    lines = [line for line in _output("history").splitlines() if "paraclip" in line]
    assert ["refused" in line for line in lines] == [True, False]


def test_damaged_record_is_one_line() -> None:
    folder = Path("reports/promotion")
    folder.mkdir(parents=True)
    (folder / "latest.json").write_text("{")
    assert _output("promote", code=1).startswith("error: reports/promotion/latest.json is damaged")


def test_profile_use_shows_then_writes() -> None:
    before = Path("params.yaml").read_text()
    shown = _output("profile", "use", "toy", "--dry-run")
    assert "+  name: toy" in shown
    assert Path("params.yaml").read_text() == before
    assert "+  name: toy" in _output("profile", "use", "toy")
    assert "name: toy" in Path("params.yaml").read_text()
    assert "already holds profile 'toy'" in _output("profile", "use", "toy")


def test_profile_list() -> None:
    assert "toy" in _output("profile", "list").split()


@pytest.mark.parametrize("command", [["promote"], ["history"], ["rollback"], ["report"], ["profile", "use"]])
def test_help_has_examples(command: list[str]) -> None:
    assert f"cliptune {' '.join(command)}" in _output(*command, "--help")


def test_nothing_heavy_is_imported_for_help() -> None:
    code = (
        "import sys, components.cli; print([m for m in ('torch', 'mlflow', 'prefect', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
