"""The command line: what it prints, what it leaves alone, how it starts."""

from __future__ import annotations

import json
import re
import shutil
import sys
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

from components.benchmarks.scoring.bootstrap import Interval
from components.cli import app
from components.registry import decision as records
from components.registry.decision import Decision, RuleVerdict
from components.report.comparison import Cell, Comparison, write_csv

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


def _decide(outcome: records.Outcome, monkeypatch: pytest.MonkeyPatch, reason: str = "gain +0.1") -> Decision:
    """Have the gate say this, and write it down."""
    decision = Decision(
        outcome=outcome,
        model="text-encoder",
        encoder="paraclip",
        encoder_sha256="abc",
        against="base",
        rules=(RuleVerdict(name="guard " + "x" * 30, passed=outcome == "promoted", reason=reason),),
        version="1" if outcome == "promoted" else "",
        tracking_uri="",
        time=records.now(),
    )
    records.save(decision)
    stand_in = types.ModuleType("components.registry.promotion")
    stand_in.promote = lambda *_args, **_options: decision  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "components.registry.promotion", stand_in)
    return decision


def _output(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_promote_without_results_is_one_line() -> None:
    output = _output("promote", code=1)
    assert output.count("\n") == 1
    assert output.startswith("error: reports/metrics/paraclip.json is missing")


def test_history_lists_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no decisions yet" in _output("history")
    _decide("refused", monkeypatch)
    _decide("promoted", monkeypatch)
    lines = [line for line in _output("history").splitlines() if "paraclip" in line]
    assert ["refused" in line for line in lines] == [True, False]


def test_damaged_record_is_one_line() -> None:
    folder = Path("reports/promotion")
    folder.mkdir(parents=True)
    (folder / "2026.json").write_text("{")
    assert _output("history", code=1).startswith("error: reports/promotion/2026.json is damaged")


def test_profile_apply_shows_then_writes() -> None:
    before = Path("params.yaml").read_text()
    shown = _output("profile", "apply", "toy", "--dry-run")
    assert "+  name: toy" in shown
    assert Path("params.yaml").read_text() == before
    assert "+  name: toy" in _output("profile", "apply", "toy")
    assert "name: toy" in Path("params.yaml").read_text()
    assert "already holds profile 'toy'" in _output("profile", "apply", "toy")


def test_profile_list_says_what_each_is_for() -> None:
    line = next(line for line in _output("profile", "list").splitlines() if "toy" in line)
    assert "The synthetic dataset with every method at a size that runs in twelve minutes" in line
    assert "mean nothing" not in line
    told = json.loads(_output("profile", "list", "--json"))
    assert told["methods"] == "The synthetic dataset with every method scored and compared."
    assert set(told) == {path.stem for path in (REPO / "infra" / "profiles").glob("*.yaml")}


def test_profile_show_prints_the_file() -> None:
    assert _output("profile", "show", "toy") == (REPO / "infra" / "profiles" / "toy.yaml").read_text("utf-8")
    assert "profile 'tory' is unknown: did you mean 'toy'?" in _output("profile", "show", "tory", code=1)


def test_a_profile_without_a_comment_has_no_description() -> None:
    Path("infra/profiles/bare.yaml").write_text("dataset: {name: bare}\n")
    assert json.loads(_output("profile", "list", "--json"))["bare"] == ""


def test_tables_are_whole_in_a_pipe_and_never_cut_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    decision = _decide("refused", monkeypatch).model_copy(update={"encoder": "a_name_of_an_encoder_" * 8})
    records.save(decision.model_copy(update={"time": records.now()}))
    monkeypatch.setenv("COLUMNS", "80")
    assert any(decision.encoder in line for line in _output("history").splitlines())
    monkeypatch.setenv("FORCE_COLOR", "1")
    narrow = _output("history")
    assert "…" not in narrow
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in narrow.splitlines()) <= 80


def test_decisions_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(_output("history", "--json")) == []
    decision = _decide("refused", monkeypatch)
    assert json.loads(_output("history", "--json")) == [decision.model_dump(mode="json")]
    assert json.loads(_output("promote", "--json")) == decision.model_dump(mode="json")


def test_the_comparison_as_json() -> None:
    value, delta = Interval(0.5, 0.4, 0.6), Interval(0.1, 0.05, 0.15)
    cells = {"swaps/accuracy": {"base": Cell(value, None, True), "paraclip": Cell(value, delta, True)}}
    write_csv(Comparison(("base", "paraclip"), cells), Path("reports/comparison.csv"))
    columns = json.loads(_output("report", "--json"))
    assert columns["encoder"] == ["base", "paraclip"]
    assert columns["value"] == [0.5, 0.5]
    assert columns["delta_low"] == [None, 0.05]


def test_a_decision_that_was_not_written_points_at_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the candidate is champion already, and another encoder's decision is the last on record."""
    found = _decide("already champion", monkeypatch)
    records.save(found.model_copy(update={"outcome": "refused", "time": records.now()}))
    for options in ([], ["--dry-run"]):
        last = _output("promote", *options).splitlines()[-1]
        assert last.endswith("already champion: paraclip; nothing written")


def test_the_rules_of_a_decision_fit_a_terminal_and_are_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "0.1000 -> 0.2000: gain +0.1000 is more than the half-width 0.0300, and so on to the very end"
    _decide("promoted", monkeypatch, reason)
    lines = _output("promote").splitlines()
    assert lines[-1] == "promoted: paraclip (version 1 of text-encoder); record: reports/promotion/latest.md"
    assert max(map(len, lines[:-1])) <= 80
    assert " ".join(line.split("│")[3].strip() for line in lines if line.count("│") == 4) == reason


def test_flags_have_no_type_in_help() -> None:
    for command in (["report"], ["answers", "prune"], ["profile", "apply"], ["s3", "make-bucket"]):
        assert "bool" not in _output(*command, "--help")


def test_help_has_examples() -> None:
    for command in ("promote", "history", "rollback", "report", "serve", "profile apply"):
        assert f"cliptune {command}" in _output(*command.split(), "--help")
