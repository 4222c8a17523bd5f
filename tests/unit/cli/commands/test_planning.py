"""`cliptune plan` shows the stages that would run and why, before any of them has run and after all have."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner
from zc.lockfile import LockFile  # type: ignore[import-untyped]

from components.cli import app
from components.cli.commands import planning
from components.cli.commands.overview import _print_stages, print_costs
from components.cli.commands.planning import NEVER_RAN, Planned, _explained_change, plan, unwatched
from components.cli.costing.cost import Cost
from components.core.compute import provenance
from components.core.compute.provenance import locked_stages
from components.core.system import stage_graph
from components.core.system.errors import InputError
from components.core.system.stage_graph import Graph, changes, outdated, read_all, read_graph
from tests.support.dvc_project import make_project
from tests.support.params import profile_text
from tests.support.typed import cliptune

STAGES = {"prepare": [], "train@a": ["prepare"], "train@b": ["prepare"], "compare": ["train@a", "train@b"]}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a checkout in which no stage has run; `prepare` depends on a setting."""
    make_project(tmp_path, STAGES)
    text = (tmp_path / "dvc.yaml").read_text()
    (tmp_path / "dvc.yaml").write_text(text.replace("  prepare:\n", "  prepare:\n    params: [dataset.seed]\n"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _repro(*targets: str) -> None:
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q", *targets], check=True, env={**os.environ})


def test_a_new_checkout_is_planned_whole(project: Path) -> None:
    planned = plan(["compare"])
    assert {entry.stage for entry in planned} == set(STAGES)
    assert planned[0] == Planned("prepare", "runs", NEVER_RAN)
    assert planned[-1] == Planned("compare", "runs after others", "train@a")
    assert {entry.why for entry in planned[1:3]} == {"prepare"}
    assert not (project / "ran.txt").exists()
    assert [entry.stage for entry in plan(["train"])] == ["prepare", "train@a", "train@b"]
    with pytest.raises(InputError, match=r"stage 'train@bb' is unknown: did you mean 'train@b'\?"):
        plan(["train@bb"])
    params = (project / "params.yaml").read_text()
    source = "  source: folder\n  folder: pictures\n"
    (project / "params.yaml").write_text(params.replace("  source: synthetic\n", source, 1))
    assert "problem: prepare.folder pictures is missing: put the files there" in cliptune("plan", code=1)
    (project / "pictures").mkdir()
    assert "problem: prepare.folder pictures has no captions.tsv: write one line" in cliptune("plan", code=1)


def test_changes_and_the_stages_after_them_would_run(project: Path) -> None:
    _repro("compare")
    assert {entry.state for entry in plan(["compare"])} == {"up to date"}
    (project / "out" / "train@a.txt").unlink()
    assert {entry.stage: (entry.state, entry.why) for entry in plan(["compare"]) if entry.state != "up to date"} == {
        "train@a": ("runs", "out/train@a.txt is missing"), "compare": ("runs after others", "train@a")
    }  # fmt: skip
    params = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(params.replace("  seed: 0\n", "  seed: 1\n", 1))
    assert changes(read_graph(), ["prepare"]) == {"prepare": "params.yaml: dataset.seed changed"}


def test_a_stage_whose_comments_changed_is_committed_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path, {"first": []})
    code = tmp_path / "components" / "core" / "a.py"
    code.parent.mkdir(parents=True)
    code.write_text("RATE = 1\n")
    stage = {"cmd": "true", "deps": ["components/core"]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"first": stage}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    provenance.remember_code("first")
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "repro", "-q"], check=True)

    def why() -> str:
        return _explained_change(locked_stages(), read_all()[1], "first")

    assert why() == ""
    code.write_text('"""A rate."""\nRATE = 1  # of learning\n')
    assert why() == "words only: `dvc commit -f first`"
    subprocess.run([*dvc, "commit", "-q", "-f", "first"], check=True)
    assert why() == ""
    code.write_text("RATE = 1\n")
    assert why() == "words only: `dvc commit -f first`"
    code.write_text('"""A rate."""\nRATE = 2\n')
    assert why() == "code changed: components/core"


def test_a_metric_that_is_never_measured_is_named(
    raw_params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for change, message in (
        ({"metric": "retrieval/t2i_recall_at_7"}, "metric 'retrieval/t2i_recall_at_7' is unknown: did you mean"),
        ({"guards": {"zero_shot/top2": 0.1}}, "guards 'zero_shot/top2' is unknown: did you mean 'zero_shot/top"),
    ):
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params | {"promote": raw_params["promote"] | change}))
        with pytest.raises(InputError, match=rf"promote\.{message}"):
            plan(["compare"])


def test_a_stage_with_many_changes_names_some(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"components/{number}": "modified" for number in range(30)}
    status = {"train@a_long_name_of_a_stage": [{"changed deps": files | {"params.yaml": {"train.lr": "modified"}}}]}
    monkeypatch.setattr(stage_graph, "_dvc", lambda *_: json.dumps(status))
    ((stage, why),) = changes(Graph(dict.fromkeys(status, frozenset())), list(status)).items()
    assert why.startswith("params.yaml: train.lr changed, code changed: components/0, components/1, ")
    _print_stages([Planned(stage, "runs after others", why)])
    lines = capsys.readouterr().out.splitlines()
    assert any("and 28 more" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_errors_of_dvc_have_a_fix(project: Path) -> None:
    (project / "dvc.yaml").write_text("stages: {prepare: {cmnd: x}}\n")
    with pytest.raises(InputError, match=r"(?s)DVC cannot read the pipeline \(.*cmnd.*\): correct dvc.yaml$"):
        plan(["compare"])
    shutil.rmtree(project / ".git")
    with pytest.raises(InputError, match="is not a git repository, which DVC requires: run `git init` there"):
        plan(["compare"])


@pytest.mark.parametrize("targets", [["compare"], ["train@b"]])
def test_a_plan_neither_waits_for_locks_of_dvc_nor_takes_them(project: Path, targets: list[str]) -> None:
    """The locks that `dvc repro train@b` holds, which fails if it does not get them back behind its stage."""
    held = {"write": {str(project / "out" / "train@b.txt"): {"pid": os.getpid(), "cmd": "dvc repro train@b"}}}
    (project / ".dvc" / "tmp").mkdir(exist_ok=True)
    rwlock = project / ".dvc" / "tmp" / "rwlock"
    rwlock.write_text(json.dumps(held))
    with closing(LockFile(str(project / ".dvc" / "tmp" / "lock"))):
        assert plan(targets)[0] == Planned("prepare", "runs", NEVER_RAN)
        assert outdated(read_graph(), ["prepare", "train@b"]) == {"prepare", "train@b"}
    assert json.loads(rwlock.read_text()) == held


def test_dvc_reads_again_what_another_run_wrote_meanwhile(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = "from pathlib import Path; lock = Path('dvc.lock'); text = lock.read_text() if lock.exists() else ''"
    writing = f"{lock}; len(text) < 2 and lock.write_text(text + 'x'); print('{{}}' if len(text) == 2 else 'half')"
    monkeypatch.setattr(stage_graph, "READING_DVC", (sys.executable, "-c", writing))
    assert changes(Graph({}), []) == {}


def test_every_file_that_settings_name_and_dvc_does_not_watch_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    make_project(tmp_path, {"prepare": []})
    monkeypatch.chdir(tmp_path)
    stage = yaml.safe_load((tmp_path / "dvc.yaml").read_text())["stages"]["prepare"]
    stage["deps"] += ["${depends.prepare}"]
    stage["params"] = ["prepare", "base", "students", "synthesize", "train", "methods.b"]
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"vars": ["params.yaml"], "stages": {"prepare": stage}}))
    for file in ("set/captions.tsv", "sets/x.json", "w.safetensors", "lm/w", "mine.tsv", "adapter/w", "state/train/x"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x")
    params = yaml.safe_load((tmp_path / "params.yaml").read_text())
    params["depends"] |= {"prepare": "set/captions.tsv"}
    params["prepare"] |= {"folder": "set", "heldout_testsets_dir": "sets"}
    params["base"] |= {"file": "w.safetensors"}
    params["students"] = {"mine": {"tasks": ["rewrite"], "teacher": ["mine.tsv", "mine.tsv"], "base": "lm"}}
    params["synthesize"]["llms"] = {"own": {"engine": "local", "adapter": "adapter"}}
    params["synthesize"] |= {"default_llm": "own", "cached_answers": "out/prepare.txt"}
    params["train"]["shards"] = {"urls": "s3://bucket/{0..9}.tar", "columns": {"caption": "txt"}}
    params["methods"]["b"] = {"method": "joint", "train_data": "set", "parts": {"read_clip": {"language_model": "lm"}}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    _repro("prepare")
    (notice,) = unwatched([Planned("prepare", "up to date", "")])
    assert sorted(notice.removeprefix("dvc does not watch ").partition(": ")[0].split(" and ")) == [
        "base.file", "methods.b.parts.read_clip.language_model", "methods.b.train_data (but captions.tsv in it)",
        "prepare.folder (but captions.tsv in it)", "prepare.heldout_testsets_dir", "students.mine.base",
        "students.mine.teacher", "synthesize.llms.own.adapter", "train.shards.urls",
    ]  # fmt: skip
    assert notice.endswith("run `dvc repro --force --single-item prepare`")
    assert unwatched([Planned("prepare", "runs", "")]) == []
    assert changes(read_graph(), ["prepare"]) == {}
    (tmp_path / "set" / "captions.tsv").write_text("edited")
    assert changes(read_graph(), ["prepare"]) == {"prepare": "set/captions.tsv changed"}


def test_costs_of_stages_are_above_their_total(capsys: pytest.CaptureFixture[str]) -> None:
    note = "no rate of engine server"
    asks = Cost("synthesize@a", "10 of 40 questions", None, 10, 1234, 5000, notes=(note,))
    trains = Cost("train@b", "3,000 samples of 2 texts", 90.0)
    print_costs([asks, trains])
    shown = capsys.readouterr()
    rows = [line.split("│")[1:-1] for line in shown.out.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["synthesize@a", "10 of 40 questions", "1k + 5k", "?"],
        ["train@b", "3,000 samples of 2 texts", "", "1.5 min"],
        ["2 stages", "", "1k + 5k", "over 1.5 min"],
    ]
    assert shown.err == f"synthesize@a: {note}\n"
    assert "price" not in shown.out
    priced = (Cost("synthesize@a", "", 1.0, price=price, batch_price=price / 4) for price in (1.0, 2.0))
    print_costs([trains, *priced])
    shown = capsys.readouterr()
    assert "price" in shown.out
    assert "in a batch" in shown.out
    assert re.search(r"3\.00 +│ +0\.75", shown.out)


def test_only_stages_that_would_run_have_a_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(profile_text("toy"))
    Path("dvc.yaml").write_text("stages: {}\n")
    stages = [Planned("prepare", "up to date", ""), Planned("validate@paraphrases", "runs", "params changed")]
    monkeypatch.setattr(planning, "plan", lambda _targets: stages)
    monkeypatch.setattr(planning, "problems", lambda _stages: [])
    done = CliRunner().invoke(app, ["plan", "--cost", "--json"], catch_exceptions=False)
    (cost,) = json.loads(done.stdout)
    assert cost["stage"] == "validate@paraphrases"
    assert cost["seconds"] > 0
