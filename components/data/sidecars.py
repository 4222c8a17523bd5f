"""Captions in a text file beside each image, as img2dataset's format `files` and trainers of image generators have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from components.core.pictures.folder import picture_names
from components.core.system.errors import InputError
from components.core.system.user_files import Bound, is_file, read_file
from components.data.caption_lines import Row

_TEXTS = (".txt", ".caption")
_MOST = Bound(1_000_000, "no setting")
_LOOKED_AT = 100
"""Images to look beside until one has a text."""


def find_sidecar(folder: Path) -> str | None:
    """The first text beside an image in `folder` or below, of some images; None without one."""
    for image in map(Path, sorted(islice(picture_names(folder), _LOOKED_AT))):
        for ending in (*_TEXTS, ".json"):
            if is_file(folder / (text := image.with_suffix(ending))):
                return str(text)
    return None


def sidecar_rows(folder: Path, names: Iterable[str]) -> Iterator[Row]:
    """A row for each image: its path, the keys of its JSON file, and the text of its text file as caption."""
    for name in names:
        image, row = folder / name, dict[str, Any]()
        if is_file(file := image.with_suffix(".json")):
            row = _parsed(file, folder)
        text = next((file for ending in _TEXTS if is_file(file := image.with_suffix(ending))), None)
        yield name, row | {"image": name} | ({} if text is None else {"caption": _text(text, folder)})


def _parsed(file: Path, folder: Path) -> dict[str, Any]:
    try:
        row = json.loads(_text(file, folder))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON ({error}): correct or remove it") from None
    if not isinstance(row, dict):
        raise InputError(f'{file} is not a JSON object: write {{"caption": ...}}')
    return row


def _text(file: Path, folder: Path) -> str:
    try:
        return read_file(file, folder, _MOST).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8: save it as UTF-8") from None
