"""The flow behind `prefect deployment run promote/<where>`: the gate, and the approval of a person on request."""

from __future__ import annotations

from prefect import flow, pause_flow_run, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import FlowPauseTimeout
from prefect.input import RunInput
from prefect.logging import get_run_logger
from pydantic import Field, PositiveFloat

from components.core.settings import load_settings
from components.core.system.errors import InputError
from components.registry import decision as records
from components.registry.champion import withdraw
from components.registry.decision import Decision, RuleVerdict
from flows.artifacts import show_decision

WAIT_HOURS = 72.0
POLL = 5
"""Seconds between two checks for the approval."""


class Approval(RunInput):
    """A person's answer to a candidate that passed the gate."""

    approve: bool = Field(False, description="Make the candidate champion.")
    by: str = Field("", description="Name of the person who decides.")
    reason: str = Field("", description="Reason for the decision.")


@flow(name="promote")
def promote_best(approval: bool = False, dry_run: bool = False, wait_hours: PositiveFloat = WAIT_HOURS) -> None:
    """Put the best candidate through the gate; a refusal is a result, not a failure.

    Args:
        approval: pause for a person's approval before a candidate that passed becomes champion.
        dry_run: judge and report only; change and write nothing.
        wait_hours: maximum time to wait for the approval.
    """
    if dry_run:
        show_proposal(judge())
    else:
        decide(approval, wait_hours)


def decide(approval: bool, wait_hours: float = WAIT_HOURS) -> None:
    """In a flow: promote the best candidate if it passes, and with `approval` only if a person agrees."""
    note = _approval(judge(), wait_hours) if approval else ""
    if note is not None:
        decision = promote()
        after = f"; then {decision.outcome}" if note and decision.outcome != "promoted" else ""
        show_decision(decision, f"{note}{after}")


def _approval(proposal: Decision, wait_hours: float) -> str | None:
    """Wait for a person's answer to a candidate that would be promoted; a note for the decision, None for a refusal.

    Meanwhile the candidate is `models:/<model>@challenger`.
    """
    if proposal.outcome != "promoted":
        return ""
    propose()
    show_proposal(proposal)
    form = Approval.with_initial_data(description=proposal.markdown())
    seconds = round(wait_hours * 3600)
    key = proposal.encoder_sha256[:32]
    try:
        answer = pause_flow_run(wait_for_input=form, timeout=seconds, poll_interval=POLL, key=key)
    except FlowPauseTimeout:
        answer = Approval(reason=f"there was no answer within {wait_hours:g} hours", by="nobody")
    text = f"{answer.by or 'somebody'}: {answer.reason or 'no reason given'}"
    if not answer.approve:
        get_run_logger().info("not promoted: %s", text)
        show_decision(write_refusal(proposal, text), f"Refused by {text}")
        return None
    if judge().encoder_sha256 != proposal.encoder_sha256:
        withdraw(proposal)
        raise InputError(f"'{proposal.encoder}' was approved, but is no longer the best candidate: run the flow again")
    return f"Approved by {text}"


@task(cache_policy=NO_CACHE)
def judge() -> Decision:
    """The gate's verdict on the best candidate, without any change."""
    return _promote(dry_run=True)


@task(cache_policy=NO_CACHE)
def promote() -> Decision:
    """Judge the best candidate, and promote it if it passes."""
    return _promote()


@task(cache_policy=NO_CACHE)
def propose() -> None:
    """Register the best candidate that passes as challenger, so that people can try it."""
    _promote(challenger=True)


def _promote(dry_run: bool = False, challenger: bool = False) -> Decision:
    from components.registry.promotion import promote as judge_and_promote

    decision = judge_and_promote(load_settings(), dry_run, challenger=challenger)
    get_run_logger().info("%s", decision.headline)
    return decision


@task(cache_policy=NO_CACHE)
def write_refusal(proposal: Decision, text: str) -> Decision:
    """Store a person's refusal, and withdraw the candidate as challenger.

    The refusal counts for this flow run only.
    """
    rules = (*proposal.rules, RuleVerdict(name="approval", passed=False, reason=text))
    refusal = proposal.model_copy(update={"outcome": "refused", "rules": rules, "time": records.now()})
    records.save(refusal)
    withdraw(proposal)
    return refusal


@task(cache_policy=NO_CACHE)
def show_proposal(proposal: Decision) -> None:
    """The artifact `promotion-proposal`: the gate's verdict."""
    create_markdown_artifact(proposal.markdown(), key="promotion-proposal", description=f"would be {proposal.headline}")
