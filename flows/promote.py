"""The flow behind `prefect deployment run promote/<where>`: the gate, and a person's consent where that is wanted."""

from __future__ import annotations

from prefect import flow, pause_flow_run, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.input import RunInput
from prefect.logging import get_run_logger
from pydantic import Field, PositiveFloat

from components.core.errors import InputError
from components.core.settings import load_settings
from components.registry import decision as records
from components.registry.champion import withdraw
from components.registry.decision import Decision, RuleVerdict
from flows.heartbeat import heartbeat
from flows.reporting import show_decision

WAIT_HOURS = 72.0
POLL = 5
"""Seconds between two looks for the answer."""


class Approval(RunInput):
    """What a person says to a candidate that passed the gate."""

    approve: bool = Field(False, description="Make the candidate champion.")
    by: str = Field("", description="Who decides.")
    reason: str = Field("", description="Why.")


@flow(name="promote")
def promote_best(approval: bool = False, dry_run: bool = False, wait_hours: PositiveFloat = WAIT_HOURS) -> None:
    """Put the best candidate through the gate; a refusal is a result, not a failure.

    Args:
        approval: pause for a person's consent before a candidate that passed becomes champion.
        dry_run: judge and report; change and write nothing.
        wait_hours: how long to wait for that consent.
    """
    with heartbeat():
        if dry_run:
            show_proposal(judge(), "promotion-proposal")
        else:
            decide(approval, wait_hours)


def decide(approval: bool, wait_hours: float = WAIT_HOURS) -> None:
    """In a flow: promote the best candidate if it passes, and if a person agrees where `approval` asks for that.

    Raises:
        InputError: results are missing, MLflow gives no answer, or the candidate changed while the flow waited.
    """
    agreed = _consent(judge(), wait_hours) if approval else ""
    if agreed is None:
        return
    show_decision(promote(), agreed)


def _consent(proposal: Decision, wait_hours: float) -> str | None:
    """Ask a person about a candidate that would be promoted; returns what they said, None for a refusal.

    While they think, it is `models:/<model>@challenger`.
    """
    if proposal.outcome != "promoted":
        return ""
    propose()
    show_proposal(proposal, "promotion-proposal")
    form = Approval.with_initial_data(description=proposal.markdown())
    seconds = round(wait_hours * 3600)
    answer = pause_flow_run(wait_for_input=form, timeout=seconds, poll_interval=POLL, key=proposal.encoder_sha256[:32])
    said = f"{answer.by or 'somebody'}: {answer.reason or 'no reason given'}"
    if not answer.approve:
        get_run_logger().info("not promoted: %s", said)
        show_decision(write_refusal(proposal, said), f"Refused by {said}")
        return None
    if judge().encoder_sha256 != proposal.encoder_sha256:
        raise InputError(f"'{proposal.encoder}' was approved, but the best candidate is another by now: run it again")
    return f"Approved by {said}"


@task(cache_policy=NO_CACHE)
def judge() -> Decision:
    """The gate's verdict on the best candidate; nothing is changed."""
    return _promote(dry_run=True)


@task(cache_policy=NO_CACHE)
def promote() -> Decision:
    """Judge the best candidate and promote it when it passes."""
    return _promote()


@task(cache_policy=NO_CACHE)
def propose() -> None:
    """Register the best candidate that passes as challenger, for people to try."""
    _promote(challenger=True)


def _promote(dry_run: bool = False, challenger: bool = False) -> Decision:
    from components.registry.promotion import promote as judge_and_promote

    decision = judge_and_promote(load_settings(), dry_run, challenger=challenger)
    get_run_logger().info("%s", decision.headline)
    return decision


@task(cache_policy=NO_CACHE)
def write_refusal(proposal: Decision, said: str) -> Decision:
    """Store that a person refused, and end the candidate's time as challenger.

    The refusal stands for this flow run alone, not for the next.
    """
    rules = (*proposal.rules, RuleVerdict(name="approval", passed=False, reason=said))
    refusal = proposal.model_copy(update={"outcome": "refused", "rules": rules, "time": records.now()})
    records.save(refusal)
    withdraw(proposal)
    return refusal


@task(cache_policy=NO_CACHE)
def show_proposal(proposal: Decision, key: str) -> None:
    """An artifact of what the gate says."""
    create_markdown_artifact(proposal.markdown(), key=key, description=f"would be {proposal.headline}")
