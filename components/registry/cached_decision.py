"""The cached promotion decision: given again, from files alone, while nothing that it rests on has changed."""

from __future__ import annotations

from pathlib import Path

from components.core.files import content_hash, file_hash
from components.core.folders import SUMMARY
from components.core.settings import Settings
from components.registry.decision import Decision, latest
from components.registry.folders import BASE, DEFAULT, Folders
from components.tracking import RUN_FILE, tracking_uri

_SQLITE = "sqlite:///"


def cached_decision(settings: Settings, folders: Folders = DEFAULT) -> Decision | None:
    """The last decision if it rests on exactly the files at hand, else None.

    None too while a candidate waits as challenger, where votes count, and where others may have moved the aliases
    meanwhile: in every store but a local file.
    """
    last = latest(folders.records)
    if (
        settings.promote.least_wins is not None
        or last is None
        or last.outcome == "challenger"
        or last.fingerprint != fingerprint(settings, folders)
    ):
        return None
    return last if _is_local(tracking_uri()) else None


def _is_local(uri: str) -> bool:
    return uri.startswith(_SQLITE) and Path(uri.removeprefix(_SQLITE)).is_file()


def fingerprint(settings: Settings, folders: Folders = DEFAULT) -> str:
    """Hash of everything that a decision rests on: results, sidecars, runs, validation, policy, registry."""
    files = sorted(folders.quarantine.glob(f"*/{SUMMARY}"))
    for encoder in sorted({BASE, *settings.encoders}):
        files += [folders.metrics / f"{encoder}.json"]
        files += [folders.models / encoder / name for name in ("encoder.json", "encoder.safetensors", RUN_FILE)]
    hashes = (file_hash(path) if path.is_file() else "missing" for path in files)
    return content_hash(tracking_uri(), settings.promote.model_dump_json(), *sorted(settings.encoders), *hashes)
