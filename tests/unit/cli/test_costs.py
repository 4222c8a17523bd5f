"""The output of `cliptune plan --cost`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from components.cli import app, planning
from components.cli.overview import print_costs
from components.cli.planning import Planned
from components.costing.cost import Cost
from tests.support.params import profile_text

ASKS = Cost("synthesize@a", "10 of 40 questions", None, 1e6, 2e9, 10, 1234, 5000, notes=("no rate of engine server",))
TRAINS = Cost("train@b", "3,000 samples of 2 texts", 90.0, 3e6, 4e9)


def test_stages_are_above_their_total(capsys: pytest.CaptureFixture[str]) -> None:
    print_costs([ASKS, TRAINS])
    shown = capsys.readouterr()
    rows = [line.split("│")[1:-1] for line in shown.out.splitlines() if line.startswith("│")]
    asked, trained, together = ([cell.strip() for cell in row] for row in rows)
    assert asked == ["synthesize@a", "10 of 40 questions", "1,234", "at most 5,000", "?", "2 GB", "1 MB"]
    assert trained == ["train@b", "3,000 samples of 2 texts", "", "", "1.5 minutes", "4 GB", "3 MB"]
    assert together == ["2 stages", "", "1,234", "at most 5,000", "more than 1.5 minutes", "4 GB", "4 MB"]
    assert shown.err == "synthesize@a: no rate of engine server\n"
    assert "price" not in shown.out
    print_costs(
        [Cost("synthesize@a", "", 1.0, 0, 0, price=1.25), TRAINS, Cost("synthesize@c", "", 1.0, 0, 0, price=2.0)]
    )
    shown = capsys.readouterr()
    assert "price" in shown.out
    assert "3.25" in shown.out


def test_only_stages_that_would_run_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(profile_text("toy"))
    Path("dvc.yaml").write_text("stages: {}\n")
    stages = [Planned("prepare", "up to date", ""), Planned("validate@paraphrases", "runs", "params changed")]
    monkeypatch.setattr(planning, "plan", lambda _targets: stages)
    monkeypatch.setattr(planning, "missing_data", list)
    done = CliRunner().invoke(app, ["plan", "--cost", "--json"], catch_exceptions=False)
    (cost,) = json.loads(done.stdout)
    assert cost["stage"] == "validate@paraphrases"
    assert cost["seconds"] > 0
