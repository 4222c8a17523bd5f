"""Follows a version to its training run, commit, dvc.lock and data, and back; used by `cliptune history --of`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.core.errors import InputError
from components.core.files import file_hash
from components.core.folders import VALIDATED
from components.core.provenance import DIRTY, locked_hashes
from components.core.records import SYNTHESISED
from components.encoders.adapter.sidecar import Sidecar
from components.registry.folders import Folders
from components.tracking import explained, make_client

if TYPE_CHECKING:
    from mlflow import MlflowClient

PROVENANCE = "provenance"
"""Folder of a training run's artifacts that holds the pipeline's state: `dvc.lock`."""
_SHORTEST = 6


@dataclass(frozen=True)
class Link:
    """One version and what it is tied to."""

    version: str
    aliases: tuple[str, ...]
    tags: dict[str, str]


def lock_hash(folders: Folders) -> str:
    """SHA-256 of dvc.lock, or an empty text where there is none."""
    return file_hash(folders.dvc_lock) if folders.dvc_lock.is_file() else ""


def tags_of(sidecar: Sidecar, folders: Folders) -> dict[str, str]:
    """A version's tags about where its weights come from: commit, dvc.lock, and each file that it was trained on.

    `data/<path>` is a file's SHA-256 as the trained encoder recorded it, `dvc/<path>` the MD5 that DVC has for it.
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

    A table of an older pipeline, whose prompts are not here any more, is left out.
    """
    names = (path.stem for path in map(Path, data_hashes) if path.is_relative_to(VALIDATED))
    return [name for name in names if name in SYNTHESISED]


def commit_of(tags: Mapping[str, str]) -> str:
    """The commit in a version's tags, marked as a sidecar marks it."""
    return tags.get("git_commit", "") + (DIRTY if tags.get("git_dirty") == "true" else "")


def link_back(client: MlflowClient, run_id: str, model: str, version: str, folders: Folders) -> None:
    """Tie the training run to its version, and keep the pipeline's state with it."""
    client.set_tag(run_id, "model_version", f"{model}/{version}")
    client.set_tag(run_id, "dvc_lock_sha256", lock_hash(folders))
    if folders.dvc_lock.is_file():
        client.log_artifact(run_id, str(folders.dvc_lock), PROVENANCE)


@explained()
def find_links(model: str, text: str) -> list[Link]:
    """Versions that `text` leads to: a version's number, or the start of a run id, commit or hash; newest first.

    Raises:
        InputError: `text` is too short to mean one thing, or MLflow gives no answer.
    """
    if len(text) < _SHORTEST and not text.isdigit():
        raise InputError(f"--of '{text}' is too short: give {_SHORTEST} characters of a run id, commit or hash")
    client = make_client()
    found = sorted(client.search_model_versions(f"name = '{model}'"), key=lambda one: -int(one.version))
    return [_link(client, model, one) for one in found if _leads_to(text, one)]


def _leads_to(text: str, found: Any) -> bool:
    if text == str(found.version):
        return True
    return len(text) >= _SHORTEST and any(value.startswith(text) for value in found.tags.values())


def _link(client: MlflowClient, model: str, found: Any) -> Link:
    # A search does not tell aliases.
    whole = client.get_model_version(model, found.version)
    return Link(str(found.version), tuple(whole.aliases), dict(found.tags))
