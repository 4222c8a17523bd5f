"""Links a version with its training run, commit, dvc.lock and data, in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.compute.provenance import DIRTY, LOCK, locked_hashes
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tables.folders import VALIDATED
from components.core.tables.records import SYNTHESISED
from components.core.tracking import explained, make_client, training_run
from components.encoders.adapter.sidecar import Sidecar
from components.registry.folders import PromotionFolders

_SHORTEST = 6


@dataclass(frozen=True)
class Link:
    """A version with its aliases and tags."""

    version: str
    aliases: tuple[str, ...]
    tags: dict[str, str]


def lock_hash(folders: PromotionFolders) -> str:
    """SHA-256 of dvc.lock; empty if there is none."""
    return file_hash(folders.dvc_lock) if folders.dvc_lock.is_file() else ""


def tags_of(sidecar: Sidecar, folders: PromotionFolders) -> dict[str, str]:
    """Tags with the origin of a version's weights: commit, dvc.lock, and each file that it was trained on.

    `data/<path>` is the SHA-256 that the trained encoder recorded for a file, `dvc/<path>` the MD5 in dvc.lock.
    """
    tags = {
        "method": sidecar.method,
        "git_commit": sidecar.git_commit.removesuffix(DIRTY),
        "git_dirty": str(sidecar.git_commit.endswith(DIRTY)).lower(),
        "dvc_lock_sha256": lock_hash(folders),
    }
    locked = locked_hashes(folders.dvc_lock)
    for path, digest in sidecar.data_hashes.items():
        tags[f"data/{path}"] = digest
    for path in (*sidecar.data_hashes, str(folders.models / sidecar.name)):
        if path in locked:
            tags[f"dvc/{path}"] = locked[path]
    return tags


def tables_trained_on(data_hashes: Iterable[str]) -> list[str]:
    """Names of the synthesised tables among the files that an encoder was trained on.

    Tables of an older pipeline, whose prompts are gone, are left out.
    """
    names = (path.stem for path in map(Path, data_hashes) if path.is_relative_to(VALIDATED))
    return [name for name in names if name in SYNTHESISED]


@explained()
def find_links(model: str, text: str) -> list[Link]:
    """Versions with the number `text`, or with a run id, commit or hash that starts with it; newest first."""
    if len(text) < _SHORTEST and not text.isdigit():
        raise InputError(
            f"--of '{text}' is too short: give at least {_SHORTEST} characters of a run id, commit or hash"
        )
    client = make_client()
    matching = [version for version in client.search_model_versions(f"name = '{model}'") if _matches(text, version)]
    # A search returns no aliases.
    versions = [client.get_model_version(model, version.version) for version in matching]
    versions.sort(key=lambda version: -int(version.version))
    return [Link(str(version.version), tuple(version.aliases), dict(version.tags)) for version in versions]


def _matches(text: str, version: Any) -> bool:
    return text == str(version.version) or (
        len(text) >= _SHORTEST and any(value.startswith(text) for value in version.tags.values())
    )


def record_lock(encoder: Path, facts: Mapping[str, str]) -> tuple[str, str] | None:
    """Store dvc.lock as an artifact of the run that trained `encoder`, and tag the run with `facts`.

    The first lock file after the training is kept: later ones describe other stages. Returns the ids of the MLflow run
    and its experiment, None if there is no such run.
    """
    run_id = training_run(encoder)
    if not run_id or not LOCK.is_file():
        return None
    try:
        with explained():
            client = make_client()
            run = client.get_run(run_id)
    except InputError:
        return None
    if not facts.keys() <= run.data.tags.keys():
        client.log_artifact(run_id, str(LOCK))
        for name, value in {"dvc_lock_sha256": file_hash(LOCK), **facts}.items():
            client.set_tag(run_id, name, value)
    return run_id, str(run.info.experiment_id)
