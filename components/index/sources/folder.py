"""A folder of pictures, whatever its depth: those that a file such as `captions.tsv` lists, as stage `prepare` reads
them, and all others whose names end like a picture's. The file's texts and further columns become the index's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.errors import InputError
from components.data.checked_pictures import Sample
from components.data.listing import Listing
from components.data.source import Unusable
from components.data.sources.folder import FILES
from components.index.sources.pictures import Further, picture_blocks
from components.index.sources.source import Block, Opened, Source, tower_of, width_of

ENDINGS = {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".ppm", ".pgm"}
"""Endings of pictures that no file lists."""


def _fits(given: str) -> bool:
    folder = Path(given)
    return folder.is_dir() and (FILES.find(folder) is not None or next(_names(folder), None) is not None)


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.suffix.lower() in ENDINGS and not path.is_dir():
            yield path.relative_to(folder).as_posix()


def _open(given: str, encoder: EncoderUnderTest | None) -> Opened:
    sees, tower = tower_of(encoder, f"it embeds the pictures in {given}")
    folder = Path(given)
    captions, further = _listed(folder)
    names = sorted({*captions, *_names(folder)})
    if not names:
        raise InputError(f"--from {given} has no pictures ({', '.join(sorted(ENDINGS))}): correct the path")

    def blocks() -> Iterator[Block]:
        return picture_blocks(given, _pictures(folder, names, captions), sees, further)

    return Opened(tower, sees.name, width_of(sees), len(names), blocks)


def _pictures(folder: Path, names: Iterable[str], captions: dict[str, str]) -> Iterator[Sample | Unusable]:
    listing = Listing(folder, folder, [])
    for name in names:
        path = listing.find_image(name)
        if path is None:
            yield Unusable(f"{folder / name} is missing, or a link that leads out of {folder}: copy it there")
            continue
        try:
            raw = path.read_bytes()
        except OSError as error:
            yield Unusable(f"{path} cannot be read ({error.strerror}): make it readable or remove it")
            continue
        yield Sample(str(path), raw, str(path), None, (captions.get(name, ""),), name)


def _listed(folder: Path) -> tuple[dict[str, str], Further]:
    """The first line of each picture that a file lists: its caption, and its further columns as texts."""
    captions, further = dict[str, str](), dict[str, dict[str, str]]()
    if FILES.find(folder) is not None:
        for _, row in FILES.rows(FILES.only(folder, "")):
            texts = {name: "" if value is None else str(value).strip() for name, value in row.items()}
            name = os.path.normpath(texts.pop("image"))
            captions.setdefault(name, texts.pop("caption"))
            further.setdefault(name, texts)
    return captions, further


SOURCE = Source(_fits, _open, general=True)
