"""Makes a version champion so that a killed promotion or rollback is finished by running it again.

The decision is a tag of the version before the alias `champion` moves, and is removed when all that follows is done:
the other aliases and tags, the record, the webhook. A champion with that tag was left half-way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.core.settings import Settings
from components.registry import decision as records
from components.registry import locks
from components.registry import model as versions
from components.registry.decision import Decision
from components.registry.folders import Folders
from components.registry.webhook import announce

if TYPE_CHECKING:
    from mlflow import MlflowClient

UNFINISHED = "unfinished_decision"
"""Tag of a version: the decision that makes it champion, as JSON."""


def make_champion(client: MlflowClient, decision: Decision, settings: Settings, folders: Folders) -> None:
    """Point `champion` at the version of `decision`, and do all that follows."""
    client.set_model_version_tag(decision.model, decision.version, UNFINISHED, decision.model_dump_json())
    client.set_registered_model_alias(decision.model, versions.CHAMPION, decision.version)
    finish(client, settings, folders)


def finish_killed(client: MlflowClient, settings: Settings, folders: Folders) -> Decision | None:
    """Finish what a killed process left half-way; returns its decision, None where nothing was left.

    Raises:
        InputError: another process is at work on it.
    """
    champion = versions.find_alias(client, settings.promote.model, versions.CHAMPION)
    if champion is None or UNFINISHED not in champion.tags:
        return None
    with locks.held(settings.promote.model, "the rest of a killed promotion"):
        return finish(client, settings, folders)


def finish(client: MlflowClient, settings: Settings, folders: Folders) -> Decision | None:
    """Do what follows on a change of champion, if that was not done yet; returns the decision of that change."""
    model = settings.promote.model
    champion = versions.find_alias(client, model, versions.CHAMPION)
    if champion is None or UNFINISHED not in champion.tags:
        return None
    decision = Decision.model_validate_json(champion.tags[UNFINISHED])
    version, before = decision.version, decision.previous_version
    client.set_model_version_tag(model, version, versions.PROMOTED, decision.time)
    if before:
        client.set_registered_model_alias(model, versions.PREVIOUS, before)
    if decision.outcome == "rolled back":
        client.set_model_version_tag(model, before, versions.ROLLED_BACK, decision.time)
    if versions.ROLLED_BACK in champion.tags:
        client.delete_model_version_tag(model, version, versions.ROLLED_BACK)
    challenger = versions.find_alias(client, model, versions.CHALLENGER)
    if challenger is not None and str(challenger.version) == version:
        client.delete_registered_model_alias(model, versions.CHALLENGER)
    _save(client, decision, folders)
    announce(decision, settings.promote)
    client.delete_model_version_tag(model, version, UNFINISHED)
    return decision


def write_down(client: MlflowClient, decision: Decision, folders: Folders) -> Decision:
    """Keep a decision that moved no champion; returns the last record where that says the same."""
    last = records.latest(folders.records)
    if last is not None and last.model_copy(update={"time": decision.time}) == decision:
        return last
    _save(client, decision, folders)
    return decision


def _save(client: MlflowClient, decision: Decision, folders: Folders) -> None:
    """Keep the record on disk and, of a candidate, in the run that trained it."""
    from mlflow.exceptions import MlflowException

    record = records.save(decision, folders.records)
    if decision.outcome == "rolled back":
        return
    try:
        client.log_artifact(decision.run_id, str(record), "promotion")
        client.set_tag(decision.run_id, "promotion", decision.outcome)
    except MlflowException:
        # A run that MLflow does not know is a reason of the refusal itself; the record on disk is kept.
        return
