"""A folder of pictures, whatever its depth; texts and further columns come from the file that lists them, if there is
one, such as `captions.tsv`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.errors import InputError
from components.data.sources.folder import FILES
from components.index.sources.pictures import Picture, picture_blocks
from components.index.sources.source import Block, Opened, Source, tower_of, width_of

ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp"}
"""What a picture's file may end with."""


def _fits(given: str) -> bool:
    folder = Path(given)
    return folder.is_dir() and (FILES.find(folder) is not None or next(_files(folder), None) is not None)


def _files(folder: Path) -> Iterator[Path]:
    """The pictures of a folder that lie in it; a link is none, as it may lead out of it."""
    for path in folder.rglob("*"):
        if path.suffix.lower() in ENDINGS and path.is_file() and not path.is_symlink():
            yield path


def _open(given: str, encoder: EncoderUnderTest | None) -> Opened:
    sees, tower = tower_of(encoder, f"it embeds the pictures in {given}")
    folder = Path(given)
    files = sorted(_files(folder))
    if not files:
        raise InputError(f"--from {given} has no pictures ({', '.join(sorted(ENDINGS))}): correct the path")

    def blocks() -> Iterator[Block]:
        return picture_blocks(given, _pictures(folder, files), sees)

    return Opened(tower, sees.name, width_of(sees), len(files), blocks)


def _pictures(folder: Path, files: list[Path]) -> Iterator[Picture | str]:
    known = _known(folder)
    for path in files:
        name = path.relative_to(folder).as_posix()
        further = dict(known.get(name, {}))
        try:
            raw = path.read_bytes()
        except OSError as error:
            yield f"{path} cannot be read ({error.strerror}): make it readable or remove it"
            continue
        yield Picture(name, raw, str(path), None, str(further.pop("caption", None) or "").strip(), further)


def _known(folder: Path) -> dict[str, Mapping[str, Any]]:
    """The first line of each picture, by its name: its caption and further columns, as texts."""
    listed = FILES.find(folder)
    found: dict[str, Mapping[str, Any]] = {}
    if listed is not None:
        for _, row in FILES.rows(folder / listed):
            texts = {
                name: None if value in (None, "") else str(value) for name, value in row.items() if name != "image"
            }
            found.setdefault(str(row["image"]), texts)
    return found


SOURCE = Source(_fits, _open, general=True)
