"""Folders of files in a store: dataset shards, exported encoders. A manifest, written last, says that all is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError

from components.core.errors import InputError
from components.core.storage.faults import MissingError
from components.core.storage.upload import Stored

MANIFEST = "cliptune-manifest.json"


class Entry(BaseModel):
    """One file of a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    sha256: str


class Manifest(BaseModel):
    """All files of a folder: path below it -> what it holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: dict[str, Entry]


def folder_files(folder: Path) -> list[Path]:
    """The files below a folder, sorted.

    Raises:
        InputError: there are none.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    if not files:
        raise InputError(f"{folder} holds no files: name a folder that does")
    return files


def put_folder(
    put: Callable[[Path, str], Stored], put_bytes: Callable[[bytes, str], object], folder: Path, url: str
) -> list[Stored]:
    """Store every file below a folder, and then the manifest.

    Args:
        put: stores a file.
        put_bytes: stores a small object.
        folder: what to store.
        url: `s3://bucket/prefix/`.
    """
    url = url.rstrip("/") + "/"
    files = folder_files(folder)
    names = [path.relative_to(folder).as_posix() for path in files]
    stored = [put(path, url + name) for path, name in zip(files, names, strict=True)]
    entries = {name: Entry(size=one.size, sha256=one.sha256) for name, one in zip(names, stored, strict=True)}
    content = Manifest(files=entries).model_dump()
    put_bytes((json.dumps(content, indent=2, sort_keys=True) + "\n").encode(), url + MANIFEST)
    return stored


def read_manifest(read: Callable[[str], bytes], url: str) -> Manifest | None:
    """The manifest of a folder; None when it has none.

    Raises:
        InputError: it is damaged, or names files outside the folder.
    """
    url = url.rstrip("/") + "/" + MANIFEST
    try:
        manifest = Manifest.model_validate_json(read(url))
    except MissingError:
        return None
    except ValidationError:
        raise InputError(f"{url} is damaged: upload the folder again") from None
    for name in manifest.files:
        check_inside(name, url)
    return manifest


def check_inside(name: str, url: str) -> None:
    """Raise `InputError` when a name in a store would be written outside the folder it belongs to."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise InputError(f"{url} names '{name}', which lies outside the folder: do not trust what is there")
