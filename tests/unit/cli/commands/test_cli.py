"""Output, refusals, help and profiles; what a user starts without MLflow's server fails with one line."""

from __future__ import annotations

import json
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from components.cli import app
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tracking import tracked_run
from components.core.tracking.errors import WAIT
from components.evaluation.report.comparison import Comparison, write_csv
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.result_table import Cell
from components.registry import decision as records
from components.registry.champion import rollback
from components.registry.decision import Decision, RuleVerdict
from components.registry.encoder_lookup import find_encoder
from components.registry.evidence import find_links
from components.registry.promotion import promote
from components.registry.sweep import sweep_aliases, sweep_runs
from components.serving.server.served import Alias, Loading
from tests.support.params import REPO, copy_profiles
from tests.support.registry_project import Project
from tests.support.typed import cliptune


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(REPO / "params.yaml", tmp_path)
    copy_profiles(tmp_path)
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "mlflow.db").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def _decide(outcome: records.Outcome, monkeypatch: pytest.MonkeyPatch, reason: str = "gain +0.1") -> Decision:
    """Have the gate return this decision, and write its record."""
    rules = (RuleVerdict(name="guard " + "x" * 30, passed=outcome == "promoted", reason=reason),)
    decision = Decision(
        outcome=outcome, model="text-encoder", encoder="paraclip", encoder_sha256="abc", against="base", rules=rules,
        version="1" if outcome == "promoted" else "", tracking_uri="", time=records.now(),
    )  # fmt: skip
    records.save(decision)
    stand_in = types.ModuleType("components.registry.promotion")
    stand_in.promote = lambda *_args, **_options: decision  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "components.registry.promotion", stand_in)
    return decision


def test_history_lists_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no decisions yet" in cliptune("history")
    assert json.loads(cliptune("history", "--json")) == []
    refused = _decide("refused", monkeypatch).model_dump(mode="json")
    assert json.loads(cliptune("history", "--json")) == [refused]
    assert json.loads(cliptune("promote", "--json")) == refused
    _decide("promoted", monkeypatch)
    lines = [line for line in cliptune("history").splitlines() if "paraclip" in line]
    assert ["refused" in line for line in lines] == [True, False]
    Path("reports/promotion/2026.json").write_text("{")
    assert cliptune("history", code=1).startswith("error: reports/promotion/2026.json is damaged")


def test_profiles_are_listed_shown_applied_and_reset() -> None:
    params = Path("params.yaml")
    before = params.read_text()
    Path("infra/profiles/bare.yaml").write_text("dataset: {name: bare}\n")
    profiles = json.loads(cliptune("profile", "list", "--json"))
    assert set(profiles) == {path.stem for of in ("infra", "research") for path in Path(of, "profiles").glob("*.yaml")}
    assert profiles["methods"] == "The synthetic dataset with every method scored and compared."
    assert profiles["bare"] == ""
    listed = cliptune("profile", "list").splitlines()
    assert any("vit-b-32" in line and "CLIP" in line for line in listed)
    assert max(map(len, listed)) <= 80
    assert cliptune("profile", "show", "toy") == Path("infra/profiles/toy.yaml").read_text("utf-8")
    assert "holds no profile" in cliptune("profile", "reset")
    assert "+  name: toy" in cliptune("profile", "apply", "toy", "--dry-run", "--diff")
    assert params.read_text() == before
    shown = cliptune("profile", "apply", "toy")
    assert "by block: dataset 1, " in shown
    assert len(shown.splitlines()) <= 5
    assert "params.yaml does not change" in cliptune("profile", "apply", "toy")
    cliptune("profile", "apply", "bare")
    applied = params.read_text()
    assert "name: bare" in applied
    assert "bootstrap: 1000" in applied
    assert "name: bare" in cliptune("profile", "apply", "toy", "--over", "--dry-run", "--diff")
    assert "-  name: bare" in cliptune("profile", "reset", "--dry-run", "--diff")
    assert params.read_text() == applied
    own = {"student: {": "mine: {", "default_llm: student": "default_llm: mine", "name: bare": "name: synthetic"}
    for old, new in own.items():
        params.write_text(params.read_text().replace(old, new, 1))
    cliptune("profile", "apply", "methods", "--over")
    assert "cs_clip" in params.read_text()
    assert "student_edits" not in params.read_text()
    assert "params.yaml is as before the first profile" in cliptune("profile", "reset")
    assert params.read_text() == before
    assert "holds no profile" in cliptune("profile", "reset")


def test_a_name_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    folder = "components/captions/prompting/tasks"
    for name, present in (("rewrite", "the task 'rewrite'"), ("pc_clip", f"{folder}/pc_clip.py")):
        assert f"error: {present} exists: choose another name" in cliptune("new", "task", name, "--dry-run", code=1)
    assert f"would write {folder}/shorten.py" in cliptune("new", "task", "shorten", "--dry-run")


def test_tables_are_whole_in_a_pipe_and_never_cut_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    decision = _decide("refused", monkeypatch).model_copy(update={"encoder": "a_name_of_an_encoder_" * 8})
    records.save(decision.model_copy(update={"time": records.now()}))
    monkeypatch.setenv("COLUMNS", "80")
    assert any(decision.encoder in line for line in cliptune("history").splitlines())
    monkeypatch.setenv("FORCE_COLOR", "1")
    narrow = cliptune("history")
    assert "…" not in narrow
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in narrow.splitlines()) <= 80


def test_the_comparison_as_json() -> None:
    value, delta = Interval(0.5, 0.4, 0.6), Interval(0.1, 0.05, 0.15)
    cells = {"swaps/accuracy": {"base": Cell(value, None, True), "paraclip": Cell(value, delta, True)}}
    write_csv(Comparison(("base", "paraclip"), cells), Path("reports/comparison.csv"))
    columns = json.loads(cliptune("report", "--json"))
    expected = {"encoder": ["base", "paraclip"], "value": [0.5, 0.5], "delta_low": [None, 0.05]}
    assert expected.items() <= columns.items()


def test_the_rules_of_a_decision_fit_a_terminal_and_its_record_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "0.1000 -> 0.2000: gain +0.1000 is more than the half-width 0.0300, and so on to the very end"
    _decide("promoted", monkeypatch, reason)
    lines = cliptune("promote").splitlines()
    assert lines[-1] == "promoted: paraclip (version 1 of text-encoder); record: reports/promotion/latest.md"
    assert max(map(len, lines[:-1])) <= 80
    assert " ".join(line.split("│")[3].strip() for line in lines if line.count("│") == 4) == reason
    # The candidate is already champion, and the last record is another encoder's.
    found = _decide("already champion", monkeypatch)
    records.save(found.model_copy(update={"outcome": "refused", "time": records.now()}))
    for options in ([], ["--dry-run"]):
        last = cliptune("promote", *options).splitlines()[-1]
        assert last.endswith("already champion: paraclip; nothing written")


def _commands(command: Any, name: str = "") -> Iterator[str]:
    """The names of all commands below a group."""
    if not hasattr(command, "commands"):
        yield name
    for word, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{name} {word}".strip())


def test_every_help_has_examples_and_flags_without_a_type() -> None:
    names = list(_commands(typer.main.get_command(app)))
    assert {"init", "mix tune", "answers prune", "profile reset", "index build"} <= set(names)
    for name in names:
        shown = " ".join(cliptune(*name.split(), "--help").split())
        assert re.search(rf"Examples?: cliptune {name}\b", shown), name
        assert " bool" not in shown, name


def test_a_mix_that_cannot_be_written_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.training.checks.check", lambda *_: None)
    for members, name, refusal in (
        ("base paraclip", "all_needs", "mixes.all_needs: 'base' is unknown"),
        ("paraclip semclip", "a/b", "'a/b' becomes a folder and a DVC stage"),
        ("paraclip semclip", "paraclip", "mixes.paraclip would replace another"),
        ("paraclip paraclip", "all_needs", "give two or more encoders to mix, each once"),
        ("paraclip", "all_needs", "give two or more encoders to mix, each once"),
    ):
        options = [word for member in members.split() for word in ("--from", member)]
        assert refusal in cliptune("mix", "tune", *options, "--name", name, "--write", code=1)
    assert not Path("state").exists()


CALLS: dict[str, Callable[[Settings], object]] = {
    "promote": promote,
    "rollback": rollback,
    "history": lambda _: find_links("text-encoder", "1"),
    "version": lambda _: find_encoder("text-encoder/3"),
    "run": lambda _: find_encoder("0" * 32),
    "serve": lambda _: Loading().first("text-encoder@champion"),
    "watch": lambda _: Alias("text-encoder", "champion").version(),
    "sweep aliases": lambda _: sweep_aliases("text-encoder"),
    "sweep runs": lambda _: sweep_runs(True),
    "stage": lambda settings: tracked_run("train", "one", settings, {}, {}).__enter__(),
}


def test_one_line_without_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://bob:s3cr3t@127.0.0.1:1")
    monkeypatch.setenv(WAIT, "0")
    for encoder in settings.compare_encoders:
        Project(settings, {}).score(encoder, "s", 0.5)
    for name, call in CALLS.items():
        with pytest.raises(InputError, match=r"http://\*\*\*@127.0.0.1:1 does not answer") as output:
            call(settings)
        assert "s3cr3t" not in str(output.value), name
        assert "\n" not in str(output.value), name
