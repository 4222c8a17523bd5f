"""Whether the last decision still stands: read from files alone, in no time."""

from __future__ import annotations

from pathlib import Path

from components.files import content_hash, file_hash
from components.registry.decision import Decision, latest
from components.registry.folders import BASE, DEFAULT, Folders
from components.settings import Settings
from components.tracking import RUN_FILE, tracking_uri

_SQLITE = "sqlite:///"


def standing_decision(settings: Settings, folders: Folders = DEFAULT) -> Decision | None:
    """The last decision if it rests on exactly the files at hand, else None."""
    last = latest(folders.records)
    if last is None or last.fingerprint != fingerprint(settings, folders):
        return None
    return None if _store_is_gone(tracking_uri()) else last


def _store_is_gone(uri: str) -> bool:
    return uri.startswith(_SQLITE) and not Path(uri.removeprefix(_SQLITE)).is_file()


def fingerprint(settings: Settings, folders: Folders = DEFAULT) -> str:
    """Hash of everything that a decision rests on: results, sidecars, runs, validation, policy, registry."""
    files: list[Path] = [folders.validation_summary]
    for encoder in sorted({BASE, *settings.encoders}):
        files += [folders.metrics / f"{encoder}.json"]
        files += [folders.models / encoder / name for name in ("encoder.json", "encoder.safetensors", RUN_FILE)]
    hashes = (file_hash(path) if path.is_file() else "missing" for path in files)
    return content_hash(tracking_uri(), settings.promote.model_dump_json(), *sorted(settings.encoders), *hashes)
