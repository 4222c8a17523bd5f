"""Reads the files of versions, and restores those of a champion that lost them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from components.core.settings import Settings
from components.core.system.errors import InputError, prefixed_errors
from components.core.tables import formats
from components.core.tables.files import file_hash
from components.core.tables.record_files import read_record
from components.core.tracking import shown_address
from components.encoders.adapter.sidecar import WEIGHTS
from components.evaluation.scoring.results import Report
from components.registry import model as versions
from components.registry.folders import PromotionFolders

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOG = logging.getLogger(__name__)


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


def check_champion(
    client: MlflowClient, reports: Sequence[Report], dry_run: bool, settings: Settings, folders: PromotionFolders
) -> None:
    """Read the champion's files, and write them again from models/ if they are lost."""
    model = settings.promote.model
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
                files_of(report.encoder, champion.description or "", folders)
                for report in reports
                if report.encoder_sha256 == sha256 and _has_weights(folders.models / report.encoder, sha256)
            ),
            None,
        )
        if parts is None:
            raise InputError(
                f"{str(error).rpartition(': ')[0]}, and no encoder in {folders.models} has its weights: `cliptune "
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


def files_of(name: str, card: str, folders: PromotionFolders) -> versions.VersionFiles:
    """The files of an encoder of the pipeline, for its version."""
    return versions.VersionFiles(folders.models / name, folders.metrics / f"{name}.json", card, folders.dvc_lock)
