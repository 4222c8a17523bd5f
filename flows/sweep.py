"""The flow behind `prefect deployment run sweep/<where>`: ends MLflow runs of dead processes on a schedule.

It also reports a champion alias that was moved by hand, and creates the automation by which Prefect's server ends flow
runs whose heartbeats stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta

from prefect import flow, get_client, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.logging import get_run_logger

from components.core.settings import load_settings
from components.registry.sweep import SweepFinding, sweep_aliases, sweep_runs

AUTOMATION = "cliptune: crash flow runs without heartbeats"
FLOWS = ["train-*", "compare-methods", "synthesize-captions", "promote", "sweep"]
"""Names of the flows of this project; the server may run others."""
SILENT_S = 900.0
"""Prefect sends a heartbeat every 180 s, and a flow outlasts a server that is unavailable for 8 minutes."""


@flow(name="sweep")
def sweep(dry_run: bool = False) -> None:
    """End MLflow runs whose process died, and report a moved alias; leaves the artifact `sweep`.

    If MLflow or the registry does not answer, the flow fails, but only after it has swept the other.

    Args:
        dry_run: only report.
    """
    if not dry_run:
        create_automation()
    places: dict[str, Callable[[], list[SweepFinding]]] = {
        "MLflow": lambda: sweep_runs(dry_run),
        "registry": lambda: sweep_aliases(load_settings().promote.model),
    }
    findings: list[SweepFinding] = []
    faults: list[Exception] = []
    for place, find in places.items():
        try:
            findings += find()
        except Exception as fault:
            get_run_logger().error("%s could not be swept: %s", place, fault)
            faults.append(fault)
    show_findings(findings, dry_run)
    if faults:
        raise faults[0]


def create_automation(silent_s: float = SILENT_S) -> None:
    """Have Prefect's server end runs of `FLOWS` as Crashed if their heartbeats stop for `silent_s` seconds."""
    trigger = EventTrigger(
        posture=Posture.Proactive,
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.*"},
        match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": FLOWS}),
        for_each={"prefect.resource.id"},
        within=timedelta(seconds=silent_s),
    )
    message = f"no heartbeat for {silent_s:g} seconds"
    action = ChangeFlowRunState(state=StateType.CRASHED, message=message)
    with get_client(sync_client=True) as client:
        if not client.read_automations_by_name(AUTOMATION):
            client.create_automation(AutomationCore(name=AUTOMATION, trigger=trigger, actions=[action]))


@task(cache_policy=NO_CACHE)
def show_findings(findings: list[SweepFinding], dry_run: bool) -> None:
    """The table `sweep` of all findings."""
    for finding in findings:
        get_run_logger().info("%s: %s: %s: %s", finding.place, finding.subject, finding.reason, finding.done)
    mode = "Dry run" if dry_run else "Sweep"
    rows = [asdict(finding) for finding in findings]
    create_table_artifact(rows, key="sweep", description=f"{mode}: {len(rows)} findings.")
