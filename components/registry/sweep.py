"""Finds MLflow runs whose process died, and a champion alias that was moved by hand. A dry run changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from components.core.system.processes import is_gone
from components.core.tracking import explained, make_client, nothing_tracked, offline_spool
from components.registry import model as versions

if TYPE_CHECKING:
    from mlflow import MlflowClient

OWNER = "owner"
"""Tag of a run: the process that writes it, see `components.core.system.processes`."""
SWEPT = "swept"
"""Tag of a run that a sweep ended: the reason."""
_PLACE = "MLflow"
_PAGE = 200


@dataclass(frozen=True)
class SweepFinding:
    """One problem that a sweep found.

    Attributes:
        place: the system, such as `MLflow`.
        subject: the object, such as a run's name and id.
        reason: the evidence that its owner is dead, or the problem.
        done: the action; in a dry run, the action that a sweep would take.
    """

    place: str
    subject: str
    reason: str
    done: str


@explained()
def sweep_runs(dry_run: bool) -> list[SweepFinding]:
    """End as KILLED the runs whose process on this host is dead; runs of other hosts stay RUNNING."""
    if nothing_tracked():
        return []
    client = make_client()
    runs = [offline_spool.run_of(path) for path in offline_spool.waiting()] if dry_run else offline_spool.send(client)
    away = ("its server was unavailable", "missing records sent")
    findings = [SweepFinding(_PLACE, f"run {run}", *away) for run in runs]
    spooled_runs = {offline_spool.run_of(path) for path in offline_spool.waiting()}
    for run in _running(client):
        owner = run.data.tags.get(OWNER, "")
        if run.info.run_id not in spooled_runs and owner and is_gone(owner):
            findings.append(_end(client, run, owner, dry_run))
    return findings


def _end(client: MlflowClient, run: Any, owner: str, dry_run: bool) -> SweepFinding:
    reason = f"its process is dead: {owner}"
    if not dry_run:
        client.set_tag(run.info.run_id, SWEPT, reason)
        client.set_terminated(run.info.run_id, "KILLED")
    return SweepFinding(_PLACE, f"{run.info.run_name} ({run.info.run_id})", reason, "ended as KILLED")


def _running(client: MlflowClient) -> list[Any]:
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs: list[Any] = []
    token = None
    while experiments:
        page = client.search_runs(experiments, "attributes.status = 'RUNNING'", max_results=_PAGE, page_token=token)
        runs += page
        token = page.token
        if not token:
            break
    return runs


@explained()
def sweep_aliases(model: str) -> list[SweepFinding]:
    """Report an alias `champion` that was moved by hand; it stays, because a person may have had a reason."""
    if nothing_tracked():
        return []
    client = make_client()
    promoted = [
        version for version in client.search_model_versions(f"name = '{model}'") if versions.PROMOTED in version.tags
    ]
    if not promoted:
        return []
    last = max(promoted, key=lambda version: version.tags[versions.PROMOTED])
    champion = versions.find_alias(client, model, versions.CHAMPION)
    now = "no version" if champion is None else f"version {champion.version}"
    if champion is not None and str(champion.version) == str(last.version):
        return []
    reason = f"the gate made version {last.version} champion at {last.tags[versions.PROMOTED][:19]}"
    advice = f"none: set the alias back in MLflow, or run the gate against {now} with `cliptune promote`"
    return [SweepFinding("registry", f"{model}@{versions.CHAMPION} is {now}", reason, advice)]
