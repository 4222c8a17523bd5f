"""Promotion as a flow, at once or after a person's consent; the sweep; and what a run records with MLflow's runs."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import flows.promote
import flows.sweep
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tracking import make_client
from components.registry.decision import LATEST, RECORDS, Decision, read, save
from components.registry.evidence import record_lock
from components.registry.sweep import SweepFinding
from flows.promote import promote_best
from flows.sweep import AUTOMATION, sweep
from tests.flows.conftest import artifact, decision, flow_runs_named
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("prefect_server")]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The gate's verdicts, one entry for each call; the last entry is repeated."""
    verdicts: list[dict[str, Any]] = [{}]

    def judge() -> Decision:
        return decision(**(verdicts.pop(0) if len(verdicts) > 1 else verdicts[0]))

    monkeypatch.setattr(flows.promote, "judge", judge)
    monkeypatch.setattr(flows.promote, "POLL", 1)
    return verdicts


def _promote_with(**answer: Any) -> None:
    """Run the flow with `approval`, and give this answer as soon as it pauses."""
    from prefect import get_client
    from prefect.flow_runs import resume_flow_run

    name = str(uuid4())

    def answer_when_paused() -> None:
        with get_client(sync_client=True) as client:

            def paused() -> list[UUID]:
                runs = client.read_flow_runs(flow_run_filter=flow_runs_named(name))
                return [run.id for run in runs if run.state is not None and run.state.is_paused()]

            wait_until(paused, 240)
            resume_flow_run(paused()[0], run_input=answer)

    thread = threading.Thread(target=answer_when_paused)
    thread.start()
    try:
        promote_best.with_options(flow_run_name=name)(approval=True)
    finally:
        thread.join()


@pytest.mark.usefixtures("gate")
def test_a_dry_run_only_shows_the_verdict_and_consent_promotes_and_names_its_giver(project: Any) -> None:
    promote_best(dry_run=True)
    assert project.ran() == []
    assert "# m: promoted" in artifact("promotion-proposal")
    save(decision())
    _promote_with(approve=True, by="Ada", reason="looks right")
    assert project.ran() == ["propose", "promote"]
    # The stand-in's refusal of this run, although an older record is the last one on disk.
    assert "# m: refused" in artifact("promotion-decision")
    assert "Approved by Ada: looks right; then refused" in artifact("promotion-decision")


@pytest.mark.usefixtures("gate")
@pytest.mark.parametrize("answers", [True, False])
def test_without_consent_only_the_reason_is_kept(answers: bool, project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    withdrawn: list[Decision] = []
    monkeypatch.setattr(flows.promote, "withdraw", withdrawn.append)
    if answers:
        _promote_with(approve=False, by="Ada", reason="wrong world")
    else:
        promote_best(approval=True, wait_hours=1 / 3600)
    assert project.ran() == ["propose"]
    assert [decision.encoder_sha256 for decision in withdrawn] == ["s"]
    record = read(RECORDS / f"{LATEST}.json")
    assert (record.outcome, record.rules[-1].name, record.rules[-1].passed) == ("refused", "approval", False)
    nobody = f"nobody: there was no answer within {1 / 3600:g} hours"
    assert record.rules[-1].reason == ("Ada: wrong world" if answers else nobody)


def test_consent_is_for_a_candidate(project: Any, gate: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows.promote, "withdraw", lambda _: None)
    gate[:] = [{}, {"encoder_sha256": "another"}]
    with pytest.raises(InputError, match="is no longer the best candidate"):
        _promote_with(approve=True)
    assert project.ran() == ["propose"]


def test_a_candidate_that_the_gate_refuses_needs_no_person(project: Any, gate: list[dict[str, Any]]) -> None:
    gate[:] = [{"outcome": "refused"}]
    promote_best(approval=True)
    assert project.ran() == ["promote"]


@pytest.mark.usefixtures("project")
def test_one_unavailable_system_does_not_stop_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect import get_client

    def fail(*_: object) -> list[SweepFinding]:
        raise InputError("the database is unavailable")

    finding = SweepFinding("registry", "m@champion is no version", "the gate made version 1 champion", "none")
    monkeypatch.setattr(flows.sweep, "sweep_runs", fail)
    monkeypatch.setattr(flows.sweep, "sweep_aliases", lambda _model: [finding])
    with get_client(sync_client=True) as client:
        for dry_run, automations in ((True, 0), (False, 1), (False, 1)):
            with pytest.raises(InputError, match="the database is unavailable"):
                sweep(dry_run=dry_run)
            assert len(client.read_automations_by_name(AUTOMATION)) == automations
    description, _, table = artifact("sweep").partition(" findings. ")
    assert description == "Sweep: 1"
    assert [row["subject"] for row in json.loads(table)] == [finding.subject]


def test_the_lock_and_a_dirty_tree_are_kept_with_both_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect import flow, get_client
    from prefect.runtime import flow_run

    from flows.artifacts import record_state

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("CLIPTUNE_MLFLOW_PAGES", "http://127.0.0.1:5000")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "code.py"], ["commit", "-qm", "code"]):
        Path("code.py").write_text("1")
        subprocess.run([*git, *command], check=True)
    Path("code.py").write_text("2")
    Path("dvc.lock").write_text("stages: {train@a: {}}\n")
    client = make_client()
    run_id = client.create_run(client.create_experiment("world"), run_name="a").info.run_id
    Path("models/a").mkdir(parents=True)
    Path("models/a/run.json").write_text(json.dumps({"run_id": run_id}))

    @flow
    def recorded() -> str:
        record_state(["a", "none"])
        return str(flow_run.id)

    made = recorded()
    tags = client.get_run(run_id).data.tags
    assert tags["dvc_lock_sha256"] == file_hash(Path("dvc.lock"))
    assert (tags["prefect_flow_run"], tags["flow_git_dirty"]) == (made, "true")
    assert [one.path for one in client.list_artifacts(run_id)] == ["dvc.lock"]
    with get_client(sync_client=True) as prefect:
        assert "git-dirty" in prefect.read_flow_run(UUID(made)).tags
    assert "train@a" in artifact("dvc-lock")
    assert f"http://127.0.0.1:5000/#/experiments/1/runs/{run_id}" in artifact("mlflow-a")
    # A later lock file tells of other stages: the first one stays.
    Path("dvc.lock").write_text("stages: {train@b: {}}\n")
    assert record_lock(Path("models/a"), {"prefect_flow_run": "another"}) == (run_id, "1")
    assert client.get_run(run_id).data.tags == tags
