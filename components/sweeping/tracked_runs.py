"""Ends MLflow runs that are still RUNNING though their process is dead."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from components.core.worker_identity import is_gone, new_worker
from components.sweeping.finding import Finding
from components.tracking import explained, make_client, nothing_tracked, offline_spool

if TYPE_CHECKING:
    from mlflow import MlflowClient

OWNER = "owner"
"""Tag of a run: the process that writes it, see `components.core.worker_identity`."""
SWEPT = "swept"
"""Tag of a run that this sweep touched: why."""
_PLACE = "MLflow"
_PAGE = 200


@explained()
def sweep_runs(silent_hours: float, dry_run: bool) -> list[Finding]:
    """End as KILLED the runs whose process on this host is dead; tag as `swept` those that are silent for long.

    A silent run may still work on another host, so it is told, and left RUNNING.

    Args:
        silent_hours: how long a run may be silent whose process is not known to this host.
        dry_run: only tell.
    """
    if nothing_tracked():
        return []
    client = make_client()
    findings = _send_ends(client, dry_run)
    spooled_runs = {offline_spool.run_of(path) for path in offline_spool.waiting()}
    for run in _running(client):
        owner = run.data.tags.get(OWNER, "")
        silent = (time.time() - _last_sign(client, run)) / 3600
        if run.info.run_id in spooled_runs:
            continue
        if owner and is_gone(owner):
            findings.append(_end(client, run, owner, dry_run))
        elif silent > silent_hours and not _is_here(owner):
            findings.append(_mark(client, run, silent, dry_run))
    return findings


def _send_ends(client: MlflowClient, dry_run: bool) -> list[Finding]:
    """Ends and evaluations of runs that their server was away for."""
    sent = [offline_spool.run_of(path) for path in offline_spool.waiting()] if dry_run else offline_spool.send(client)
    return [Finding(_PLACE, f"run {run}", "its server was away", "sent what it lacked") for run in sent]


def _is_here(owner: str) -> bool:
    """Whether an owner is a process of this host."""
    return owner.partition(" ")[0] == new_worker().partition(" ")[0]


def _end(client: MlflowClient, run: Any, owner: str, dry_run: bool) -> Finding:
    reason = f"its process is dead: {owner}"
    if not dry_run:
        client.set_tag(run.info.run_id, SWEPT, reason)
        client.set_terminated(run.info.run_id, "KILLED")
    return Finding(_PLACE, _subject(run), reason, "ended as KILLED")


def _mark(client: MlflowClient, run: Any, silent: float, dry_run: bool) -> Finding:
    reason = f"silent for {silent:.1f} hours"
    if not dry_run:
        client.set_tag(run.info.run_id, SWEPT, reason)
    return Finding(_PLACE, _subject(run), reason, "tagged: its process is none of this host; end it if it is dead")


def _subject(run: Any) -> str:
    return f"{run.data.tags.get('stage', 'run')} {run.info.run_name} ({run.info.run_id})"


def _running(client: MlflowClient) -> list[Any]:
    experiments = [found.experiment_id for found in client.search_experiments()]
    found: list[Any] = []
    token = None
    while experiments:
        page = client.search_runs(experiments, "attributes.status = 'RUNNING'", max_results=_PAGE, page_token=token)
        found += page
        token = page.token
        if not token:
            break
    return found


def _last_sign(client: MlflowClient, run: Any) -> float:
    """When a run last wrote something, in seconds since 1970: its newest metric, else its start."""
    times = [run.info.start_time]
    for metric in run.data.metrics:
        times += [entry.timestamp for entry in client.get_metric_history(run.info.run_id, metric)[-1:]]
    return float(max(times)) / 1000
