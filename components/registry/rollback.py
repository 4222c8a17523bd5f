"""Makes the previous champion champion again; behind `cliptune rollback`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.core.settings import Settings
from components.registry import decision as records
from components.registry import lineage, locks
from components.registry import model as versions
from components.registry.aliases import no_previous
from components.registry.decision import RECORDS, Decision
from components.registry.webhook import announce, check_webhook
from components.tracking import make_client, shown_address, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient


def rollback(settings: Settings, folder: Path = RECORDS) -> Decision:
    """Swap `champion` and `previous`. The version taken back is marked, and the gate refuses its weights from now on.

    Rolling back a second time undoes the first.

    Raises:
        InputError: there is no previous champion, or another process changes the aliases.
    """
    check_webhook(settings.promote)
    model = settings.promote.model
    client = make_client()
    time = records.now()
    with locks.held(model, "a rollback") as lock:
        champion, previous = _both(client, model)
        lock.confirm()
        client.set_model_version_tag(model, champion.version, versions.ROLLED_BACK, time)
        if versions.ROLLED_BACK in previous.tags:
            client.delete_model_version_tag(model, previous.version, versions.ROLLED_BACK)
        client.set_model_version_tag(model, previous.version, versions.PROMOTED, time)
        client.set_registered_model_alias(model, versions.CHAMPION, previous.version)
        client.set_registered_model_alias(model, versions.PREVIOUS, champion.version)
    decision = Decision(
        outcome="rolled back",
        model=model,
        encoder=previous.tags.get("encoder", ""),
        encoder_sha256=previous.tags.get(versions.SHA_TAG, ""),
        against=f"champion version {champion.version}",
        run_id=previous.tags.get("run_id", ""),
        git_commit=lineage.commit_of(previous.tags),
        dvc_lock_sha256=previous.tags.get("dvc_lock_sha256", ""),
        data_hash=previous.tags.get("data_hash", ""),
        version=str(previous.version),
        previous_version=str(champion.version),
        tracking_uri=shown_address(tracking_uri()),
        fingerprint="rollback",
        time=time,
    )
    records.save(decision, folder)
    announce(decision, settings.promote)
    return decision


def _both(client: MlflowClient, model: str) -> tuple[Any, Any]:
    """The champion and the version before."""
    champion, previous = (versions.find_alias(client, model, alias) for alias in (versions.CHAMPION, versions.PREVIOUS))
    if champion is None or previous is None or champion.version == previous.version:
        raise no_previous(model)
    return champion, previous
