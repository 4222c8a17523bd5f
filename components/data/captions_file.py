"""`captions.tsv` of an image folder: its lines, checked, and how images and lines are shared among the splits.

An image is known by its bytes, so that a copy of it under another name is the same image.
"""

from __future__ import annotations

import csv
import io
import random
from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from more_itertools import unique_everseen

from components.core.errors import InputError
from components.core.files import image_id
from components.core.progress import track
from components.core.settings import Counts, Prepare

NAME = "captions.tsv"


@dataclass(frozen=True)
class Line:
    """One line: its number in the file, the image's name, a caption, and a person's paraphrase of it or nothing."""

    number: int
    image: str
    caption: str
    paraphrase: str


def read_lines(settings: Prepare) -> tuple[Path, list[Line]]:
    """The file's path and its lines.

    Raises:
        InputError: the folder or the file is missing, no UTF-8, without the columns image and caption or with one of
            them twice; or a line has more or fewer fields than columns, or a caption that is empty or too long; the
            message names the line.
    """
    path = _path(settings)
    try:
        # Spreadsheets begin such a file with a byte order mark.
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        columns = next(reader, [])
        _check_columns(path, columns)
        rows = ((reader.line_num, fields) for fields in reader if fields)
        return path, [
            _line(path, number, _row(path, number, fields, columns), settings.max_caption_words)
            for number, fields in rows
        ]
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num} cannot be read ({error}): shorten or remove it") from None


def share(path: Path, lines: list[Line], counts: Counts, seed: int) -> dict[str, list[list[Line]]]:
    """Split -> lines by image. No image is in two splits; `test` and `val` count images, `train` counts lines.

    A line that gives an image the caption of a line before is left out, and the user is told how many are.

    Raises:
        InputError: there are too few.
    """
    images = [list(unique_everseen(image, attrgetter("caption"))) for image in by_image(path, lines).values()]
    if repeated := len(lines) - sum(len(image) for image in images):
        print(f"{path}: {repeated} lines left out that repeat the image and the caption of another")
    random.Random(f"folder-{seed}").shuffle(images)
    rest = images[counts.test + counts.val :]
    left = sum(len(image) for image in rest)
    if len(images) < counts.test + counts.val or left < counts.train:
        raise InputError(
            f"{path} has {len(lines)} lines of {len(images)} images; prepare.counts wants {counts.test} images to "
            f"test, {counts.val} to validate and {counts.train} lines of the others, which have {left}: lower them"
        )
    return {"test": images[: counts.test], "val": images[counts.test : counts.test + counts.val], "train": rest}


def by_image(path: Path, lines: list[Line], sizes: Container[int] | None = None) -> dict[str, list[Line]]:
    """Image id -> its lines, in the file's order; a name that `find_image` refuses stands for an image of its own.

    Args:
        path: of the file that the lines are from.
        sizes: only images of so many bytes; None for all. Each of these is read once.
    """
    names: dict[str, str] = {}
    distinct = dict.fromkeys(line.image for line in lines)
    for name in track(distinct, "identify images", len(distinct), "image"):
        found = find_image(path, name)
        if found is None and sizes is None:
            names[name] = name
        elif found is not None and (sizes is None or found.stat().st_size in sizes):
            names[name] = image_id(found.read_bytes())
    grouped: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.image in names:
            grouped[names[line.image]].append(line)
    return grouped


def find_image(path: Path, name: str) -> Path | None:
    """Where the image called `name` lies, or None when it is no file in the folder of `path`."""
    found = path.parent / name
    return found if found.resolve().is_relative_to(path.parent.resolve()) and found.is_file() else None


def _path(settings: Prepare) -> Path:
    folder = settings.folder
    if folder is None:
        raise InputError("params.yaml: prepare.source 'folder' needs prepare.folder: name the image folder there")
    if not folder.is_dir():
        raise InputError(f"image folder {folder} does not exist: correct prepare.folder in params.yaml")
    if not (folder / NAME).is_file():
        raise InputError(f"{folder / NAME} is missing: write one line for each caption, image<TAB>caption")
    return folder / NAME


def _check_columns(path: Path, columns: list[str]) -> None:
    if not {"image", "caption"} <= set(columns):
        raise InputError(f"{path}: the first line must name the columns image and caption, separated by a tab")
    twice = [name for name in ("image", "caption", "paraphrase") if columns.count(name) > 1]
    if twice:
        raise InputError(f"{path}: the first line names the column {twice[0]} twice: rename or remove one of them")


def _row(path: Path, number: int, fields: list[str], columns: list[str]) -> dict[str, str]:
    """Column -> field. Exact counts, or a tab within a caption would cut it or make its rest another column."""
    if len(fields) != len(columns):
        raise InputError(
            f"{path}: line {number} has {len(fields)} fields, the first line {len(columns)}: write spaces for tabs "
            "within a caption, and a tab before a field that is empty"
        )
    return dict(zip(columns, fields, strict=True))


def _line(path: Path, number: int, row: Mapping[str, str], longest: int) -> Line:
    image, caption = row["image"], row["caption"].strip()
    words = len(caption.split())
    if not caption:
        raise InputError(f"{path}: line {number} ({image}) has an empty caption: write or remove it")
    if words > longest:
        raise InputError(
            f"{path}: line {number} ({image}) has a caption of {words} words: shorten it or raise "
            f"prepare.max_caption_words (now {longest})"
        )
    return Line(number, image, caption, row.get("paraphrase", "").strip())
