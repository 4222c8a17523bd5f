"""Changes which version is champion (`cliptune rollback`, the alias `challenger`), and checks a champion's files.

Before the alias `champion` moves, the decision is stored as a tag of the version. The tag is removed after all further
steps: the other aliases and tags, and the record. If a process is killed in between, the next command finds
the tag and finishes these steps.

A file lock allows one promotion or rollback of a model at a time on one machine. Machines that share an MLflow server
are not locked out: `promotion` checks right before it moves an alias that the champion is still the judged one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from components.core.compute.provenance import DIRTY, LOCK
from components.core.settings import Settings
from components.core.system.errors import InputError, prefixed_errors, shown_address
from components.core.tables import formats
from components.core.tables.files import file_hash
from components.core.tables.formats import read_record
from components.core.tracking import explained, make_client, store_folder, tracking_uri
from components.encoders.adapter.sidecar import WEIGHTS
from components.evaluation.scoring.results import DEFAULT, Report
from components.registry import decision as records
from components.registry import model as versions
from components.registry.decision import Decision

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOG = logging.getLogger(__name__)
UNFINISHED = "unfinished_decision"
"""Tag of a version: the decision that makes it champion, as JSON."""


class BusyError(InputError):
    """Another process changes the aliases of the model, or has just changed them."""


@contextmanager
def promotion_lock(model: str) -> Iterator[None]:
    """Hold the file lock of `model`, which the system releases when the process ends, even if it is killed.

    Raises:
        BusyError: another process holds the lock.
    """
    path = _lock_file(model)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(
            f"another process is promoting or rolling back {model}: run the command again when it has ended"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error}): make it writable or free space") from None
    try:
        yield
    finally:
        lock.release()


def _lock_file(model: str) -> Path:
    """Next to an SQLite database, so that all projects with this registry share it; else in the project's `mlruns/`."""
    scheme, _, database = (os.environ.get("MLFLOW_REGISTRY_URI") or tracking_uri()).partition(":///")
    path = Path(database) if scheme == "sqlite" and database else store_folder() / "registry"
    return path.with_name(f"{path.name}.{model}.lock")


@explained()
def rollback(settings: Settings, began: str = "") -> Decision:
    """Swap `champion` and `previous`. The replaced version is marked, and the gate refuses its weights from then on.

    A second rollback undoes the first. A rollback that was killed is finished instead.

    Args:
        began: time of the user's command in the format of `records.now`; of two simultaneous rollbacks the second
            changes nothing.
    """
    model, began = settings.promote.model, began or records.now()
    client = make_client()
    finished = finish_killed(client, model)
    if finished is not None and finished.outcome == "rolled back":
        return finished
    with promotion_lock(model):
        aliases = (versions.CHAMPION, versions.PREVIOUS)
        champion, previous = (versions.find_alias(client, model, alias) for alias in aliases)
        if champion is None or previous is None or champion.version == previous.version:
            raise InputError(f"{model} has no previous champion to go back to: a second promotion creates one")
        if champion.tags.get(versions.PROMOTED, "") > began:
            raise BusyError(f"another command has just made version {champion.version} of {model} champion")
        check_files(client, previous)
        decision = Decision(
            outcome="rolled back",
            model=model,
            encoder=previous.tags.get("encoder", ""),
            encoder_sha256=previous.tags.get(versions.SHA_TAG, ""),
            against=f"champion version {champion.version}",
            run_id=previous.tags.get("run_id", ""),
            git_commit=previous.tags.get("git_commit", "")
            + (DIRTY if previous.tags.get("git_dirty") == "true" else ""),
            dvc_lock_sha256=previous.tags.get("dvc_lock_sha256", ""),
            data_hash=previous.tags.get("data_hash", ""),
            version=str(previous.version),
            previous_version=str(champion.version),
            tracking_uri=shown_address(tracking_uri()),
            time=records.now(),
        )
        make_champion(client, decision)
    return decision


def make_champion(client: MlflowClient, decision: Decision) -> None:
    """Point `champion` at the version of `decision`, and do all further steps."""
    client.set_model_version_tag(decision.model, decision.version, UNFINISHED, decision.model_dump_json())
    client.set_registered_model_alias(decision.model, versions.CHAMPION, decision.version)
    _finish(client, decision.model)


def finish_killed(client: MlflowClient, model: str) -> Decision | None:
    """Finish a killed promotion or rollback; returns its decision or None; InputError if another process does."""
    champion = versions.find_alias(client, model, versions.CHAMPION)
    if champion is None or UNFINISHED not in champion.tags:
        return None
    with promotion_lock(model):
        return _finish(client, model)


def _finish(client: MlflowClient, model: str) -> Decision | None:
    """Do the steps that follow a change of champion, unless they are done; returns the decision of that change."""
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
    _save(client, decision)
    client.delete_model_version_tag(model, version, UNFINISHED)
    return decision


@explained()
def withdraw(decision: Decision) -> bool:
    """Remove the alias `challenger` if it points at the weights of `decision`; returns whether it did."""
    client = make_client()
    version = versions.find_alias(client, decision.model, versions.CHALLENGER)
    if version is None or version.tags.get(versions.SHA_TAG) != decision.encoder_sha256:
        return False
    client.delete_registered_model_alias(decision.model, versions.CHALLENGER)
    return True


def record_unchanged(client: MlflowClient, decision: Decision) -> Decision:
    """Record a decision that left the champion as it was; returns the last record if only its time differs."""
    last = records.latest()
    if last is not None and last.model_copy(update={"time": decision.time}) == decision:
        return last
    _save(client, decision)
    return decision


def _save(client: MlflowClient, decision: Decision) -> None:
    """Write the record to disk and, for a candidate, into the run that trained it."""
    from mlflow.exceptions import MlflowException

    record = records.save(decision)
    if decision.outcome == "rolled back":
        return
    try:
        client.log_artifact(decision.run_id, str(record), "promotion")
        client.set_tag(decision.run_id, "promotion", decision.outcome)
    except MlflowException:
        # An unknown run is itself a reason for the refusal; the record on disk is enough.
        return


def check_files(client: MlflowClient, version: Any, *, hurry: bool = False) -> None:
    """Read results and weights of a version; raises InputError if they are lost, or of other weights than its tag.

    Args:
        hurry: do not download the weights, which may be gigabytes, from a store that is not on this machine.
    """
    name = f"version {version.version} of {version.name}"
    fix = "`cliptune promote` restores it if its weights are in models/"
    far = not client.get_model_version_download_uri(version.name, version.version).startswith(("/", "file:"))
    with TemporaryDirectory() as temporary:
        stored = versions.artifact(client, version, "metrics.json", Path(temporary))
        with prefixed_errors(name):
            hashes = {read_record(Report, stored, fix, newest=formats.RESULTS).encoder_sha256}
        if not (hurry and far):
            hashes.add(file_hash(versions.artifact(client, version, f"encoder/{WEIGHTS}", Path(temporary))))
    if hashes != {version.tags.get(versions.SHA_TAG)}:
        raise InputError(f"{name} has files of other weights: {fix}")


def has_files(client: MlflowClient, version: Any) -> bool:
    """Whether `check_files` accepts a version."""
    try:
        check_files(client, version)
    except formats.NewerFormatError:
        raise
    except InputError:
        return False
    return True


def check_champion(client: MlflowClient, model: str, reports: Sequence[Report], dry_run: bool) -> None:
    """Read the champion's files, and write them again from models/ if they are lost."""
    champion = versions.find_alias(client, model, versions.CHAMPION)
    if champion is None:
        return
    try:
        check_files(client, champion)
    except formats.NewerFormatError:
        raise
    except InputError as error:
        sha256 = champion.tags.get(versions.SHA_TAG, "")
        parts = next(
            (
                files_of(report.encoder, champion.description or "")
                for report in reports
                if report.encoder_sha256 == sha256 and _has_weights(DEFAULT.models / report.encoder, sha256)
            ),
            None,
        )
        if parts is None:
            raise InputError(
                f"{str(error).rpartition(': ')[0]}, and no encoder in {DEFAULT.models} has its weights: `cliptune "
                f"rollback`, restore {shown_address(champion.source)}, or delete its alias '{versions.CHAMPION}' in "
                "MLflow, and `cliptune promote` judges against base"
            ) from None
        if dry_run:
            raise
        # Without the lock of promotions: another process would write the same files.
        versions.upload(client, parts, champion.run_id, sha256)
        check_files(client, champion)
        _LOG.warning("version %s of %s had lost files: restored from %s", champion.version, model, parts.encoder)


def _has_weights(encoder: Path, sha256: str) -> bool:
    weights = encoder / WEIGHTS
    return weights.is_file() and file_hash(weights) == sha256


def files_of(name: str, card: str) -> versions.VersionFiles:
    """The files of an encoder of the pipeline, for its version."""
    metrics, values = DEFAULT.metrics / f"{name}.json", DEFAULT.per_query / f"{name}.safetensors"
    return versions.VersionFiles(DEFAULT.models / name, metrics, values, card, LOCK)
