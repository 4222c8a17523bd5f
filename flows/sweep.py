"""The flow behind `prefect deployment run sweep/<where>`: cleans up on a schedule what dead processes left behind.

It also tells when somebody made another version champion than the gate did.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from prefect import flow, get_client, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.logging import get_run_logger
from prefect.states import Crashed
from pydantic import PositiveFloat

from components.core.settings import load_settings
from components.core.worker_identity import is_gone
from components.sweeping.finding import Finding
from components.sweeping.moved_aliases import sweep_aliases
from components.sweeping.tracked_runs import sweep_runs
from flows.heartbeat import HEARTBEAT, OWNER, heartbeat

_STATES = (StateType.RUNNING, StateType.CANCELLING, StateType.PAUSED)
_PAGE = 200


@flow(name="sweep")
def sweep(dry_run: bool = False, silent_minutes: PositiveFloat = 15, silent_hours: PositiveFloat = 24) -> None:
    """Find runs whose owner died, and end them; tell of a moved alias; leaves artifact `sweep`.

    A place that cannot be looked at fails the flow, after all others were swept.

    Args:
        dry_run: only tell what would be done.
        silent_minutes: after how long without a heartbeat a flow run on another host counts as dead.
        silent_hours: after how long a silent MLflow run of another host is marked.
    """
    places: list[tuple[str, Callable[[], list[Finding]]]] = [
        ("Prefect", lambda: sweep_flow_runs(silent_minutes * 60, dry_run)),
        ("MLflow", lambda: sweep_runs(silent_hours, dry_run)),
        ("registry", lambda: sweep_aliases(load_settings().promote.model)),
    ]
    findings: list[Finding] = []
    faults: list[Exception] = []
    with heartbeat():
        for place, look in places:
            try:
                findings += look()
            except Exception as fault:
                get_run_logger().error("%s could not be swept: %s", place, fault)
                faults.append(fault)
        show_findings(findings, dry_run)
    if faults:
        raise faults[0]


def sweep_flow_runs(silent_s: float, dry_run: bool) -> list[Finding]:
    """End as Crashed the flow runs whose process is dead, or shows no life on another host.

    Args:
        silent_s: after how many seconds without a heartbeat a process on another host counts as dead.
        dry_run: only tell.
    """
    chosen = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_STATES))))
    findings = []
    with get_client(sync_client=True) as client:
        for run in _all(client, chosen):
            if reason := _why_dead(run, silent_s):
                if not dry_run:
                    client.set_flow_run_state(run.id, Crashed(message=f"Found by sweep: {reason}"), force=True)
                findings.append(Finding("Prefect", f"flow run {run.name} ({run.id})", reason, "ended as Crashed"))
    return findings


def _all(client: SyncPrefectClient, chosen: FlowRunFilter) -> list[FlowRun]:
    found: list[FlowRun] = []
    while page := client.read_flow_runs(flow_run_filter=chosen, limit=_PAGE, offset=len(found)):
        found += page
    return found


def _why_dead(run: FlowRun, silent_s: float) -> str:
    """Why nobody works on a flow run any more; empty when somebody may, as for flows that name no owner."""
    owner, beat = str(run.labels.get(OWNER, "")), run.labels.get(HEARTBEAT)
    if not owner:
        return ""
    if is_gone(owner):
        return f"its process is dead: {owner}"
    silent = time.time() - float(beat) if isinstance(beat, int | float) else 0.0
    return f"no heartbeat for {silent / 60:.0f} minutes from {owner}" if silent > silent_s else ""


@task(cache_policy=NO_CACHE)
def show_findings(findings: list[Finding], dry_run: bool) -> None:
    """An artifact of what was found: `sweep`."""
    for finding in findings:
        get_run_logger().info("%s: %s: %s: %s", finding.place, finding.subject, finding.reason, finding.done)
    mood = "What would be done about" if dry_run else "What was done about"
    rows = [asdict(finding) for finding in findings]
    create_table_artifact(rows, key="sweep", description=f"{mood} {len(rows)} things.")
