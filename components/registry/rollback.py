"""Makes the previous champion champion again; behind `cliptune rollback`."""

from __future__ import annotations

from components.core.errors import InputError
from components.core.settings import Settings
from components.registry import decision as records
from components.registry import lineage, locks
from components.registry import model as versions
from components.registry.champion import finish_killed, make_champion
from components.registry.decision import Decision
from components.registry.folders import DEFAULT, Folders
from components.registry.webhook import check_webhook
from components.tracking import explained, make_client, shown_address, tracking_uri


@explained()
def rollback(settings: Settings, folders: Folders = DEFAULT, began: str = "") -> Decision:
    """Swap `champion` and `previous`. The version taken back is marked, and the gate refuses its weights from now on.

    Rolling back a second time undoes the first. One that was killed half-way is finished instead.

    Args:
        began: when the user gave the command, as `records.now` writes it; of two at once the second changes nothing.

    Raises:
        InputError: there is no previous champion, another process changes the aliases, or MLflow gives no answer.
    """
    check_webhook(settings.promote)
    model, began = settings.promote.model, began or records.now()
    client = make_client()
    finished = finish_killed(client, settings, folders)
    if finished is not None and finished.outcome == "rolled back":
        return finished
    with locks.held(model, "a rollback") as lock:
        aliases = (versions.CHAMPION, versions.PREVIOUS)
        champion, previous = (versions.find_alias(client, model, alias) for alias in aliases)
        if champion is None or previous is None or champion.version == previous.version:
            raise InputError(f"{model} has no previous champion to go back to: only a second promotion makes one")
        if champion.tags.get(versions.PROMOTED, "") > began:
            raise locks.BusyError(model, f"another command, which made version {champion.version} champion meanwhile")
        lock.confirm()
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
            time=records.now(),
        )
        make_champion(client, decision, settings, folders)
    return decision
