"""Promotion as a flow: at once, or after a person's consent; a person's refusal is recorded."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID, uuid4

import pytest

import flows.promote
from components.core.system.errors import InputError
from components.registry.decision import LATEST, RECORDS, Decision, read, save
from flows.promote import promote_best
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
def test_a_dry_run_only_shows_the_verdict(project: Any) -> None:
    promote_best(dry_run=True)
    assert project.ran() == []
    assert "# m: promoted" in artifact("promotion-proposal")


@pytest.mark.usefixtures("gate")
def test_consent_promotes_and_its_giver_is_on_the_page(project: Any) -> None:
    save(decision())
    _promote_with(approve=True, by="Ada", reason="looks right")
    assert project.ran() == ["propose", "promote"]
    # The stand-in's refusal of this run, although an older record is the last one on disk.
    assert "# m: refused" in artifact("promotion-decision")
    assert "Approved by Ada: looks right; then refused" in artifact("promotion-decision")


@pytest.mark.usefixtures("gate")
def test_without_consent_nothing_is_promoted_and_the_reason_is_kept(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    withdrawn: list[Decision] = []
    monkeypatch.setattr(flows.promote, "withdraw", withdrawn.append)
    _promote_with(approve=False, by="Ada", reason="wrong world")
    assert project.ran() == ["propose"]
    assert [decision.encoder_sha256 for decision in withdrawn] == ["s"]
    record = read(RECORDS / f"{LATEST}.json")
    assert (record.outcome, record.rules[-1].name, record.rules[-1].passed) == ("refused", "approval", False)
    assert record.rules[-1].reason == "Ada: wrong world"


@pytest.mark.usefixtures("gate")
def test_a_candidate_that_nobody_answers_for_is_withdrawn(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    withdrawn: list[Decision] = []
    monkeypatch.setattr(flows.promote, "withdraw", withdrawn.append)
    promote_best(approval=True, wait_hours=1 / 3600)
    assert project.ran() == ["propose"]
    assert [decision.encoder_sha256 for decision in withdrawn] == ["s"]
    assert read(RECORDS / f"{LATEST}.json").rules[-1].reason.startswith("nobody: there was no answer within")


def test_consent_is_for_one_candidate(
    project: Any, gate: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows.promote, "withdraw", lambda _: None)
    gate[:] = [{}, {"encoder_sha256": "another"}]
    with pytest.raises(InputError, match="is no longer the best candidate"):
        _promote_with(approve=True)
    assert project.ran() == ["propose"]


def test_a_candidate_that_the_gate_refuses_needs_no_person(project: Any, gate: list[dict[str, Any]]) -> None:
    gate[:] = [{"outcome": "refused"}]
    promote_best(approval=True)
    assert project.ran() == ["promote"]
