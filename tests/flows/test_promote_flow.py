"""Promotion as a flow: at once, or after a person's consent; a person's refusal is recorded."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import pytest

import flows.promote
from components.core.system.errors import InputError
from components.registry.decision import LATEST, RECORDS, Decision, read, save
from flows.promote import promote_best
from tests.flows.conftest import artifact, decision, flow_runs_named
from tests.support.waiting import wait_until


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The gate's verdicts, one entry for each call; the last entry is repeated."""
    verdicts: list[dict[str, Any]] = [{}]

    def judge() -> Decision:
        return decision(**(verdicts.pop(0) if len(verdicts) > 1 else verdicts[0]))

    monkeypatch.setattr(flows.promote, "judge", judge)
    monkeypatch.setattr(flows.promote, "POLL", 1)
    return verdicts


def _answer(name: str, **answer: Any) -> threading.Thread:
    """Answer a flow run's question as soon as it asks."""
    from prefect import get_client
    from prefect.flow_runs import resume_flow_run

    def answer_when_paused() -> None:
        with get_client(sync_client=True) as client:

            def paused() -> list[UUID]:
                runs = client.read_flow_runs(flow_run_filter=flow_runs_named(name))
                return [run.id for run in runs if run.state is not None and run.state.is_paused()]

            wait_until(paused, 240)
            resume_flow_run(paused()[0], run_input=answer)

    thread = threading.Thread(target=answer_when_paused)
    thread.start()
    return thread


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server", "gate")
def test_a_dry_run_only_shows_the_verdict(project: Any) -> None:
    promote_best(dry_run=True)
    assert project.ran() == []
    assert "# m: promoted" in artifact("promotion-proposal")


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server", "gate")
def test_consent_promotes_and_its_giver_is_on_the_page(project: Any) -> None:
    save(decision())
    thread = _answer("asked", approve=True, by="Ada", reason="looks right")
    promote_best.with_options(flow_run_name="asked")(approval=True)
    thread.join()
    assert project.ran() == ["propose", "promote"]
    # The stand-in's refusal of this run, although an older record is the last one on disk.
    assert "# m: refused" in artifact("promotion-decision")
    assert "Approved by Ada: looks right" in artifact("promotion-decision")


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server", "gate")
def test_without_consent_nothing_is_promoted_and_the_reason_is_kept(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    withdrawn: list[Decision] = []
    monkeypatch.setattr(flows.promote, "withdraw", withdrawn.append)
    thread = _answer("denied", approve=False, by="Ada", reason="wrong world")
    promote_best.with_options(flow_run_name="denied")(approval=True)
    thread.join()
    assert project.ran() == ["propose"]
    assert [decision.encoder_sha256 for decision in withdrawn] == ["s"]
    record = read(RECORDS / f"{LATEST}.json")
    assert (record.outcome, record.rules[-1].name, record.rules[-1].passed) == ("refused", "approval", False)
    assert record.rules[-1].reason == "Ada: wrong world"


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_consent_is_for_one_candidate(project: Any, gate: list[dict[str, Any]]) -> None:
    gate[:] = [{}, {"encoder_sha256": "another"}]
    thread = _answer("late", approve=True)
    with pytest.raises(InputError, match="is no longer the best candidate"):
        promote_best.with_options(flow_run_name="late")(approval=True)
    thread.join()
    assert project.ran() == ["propose"]


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_a_candidate_that_the_gate_refuses_needs_no_person(project: Any, gate: list[dict[str, Any]]) -> None:
    gate[:] = [{"outcome": "refused"}]
    promote_best(approval=True)
    assert project.ran() == ["promote"]
