"""Pairs from a folder on disk: `captions.tsv` with the columns image and caption, beside the image files."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from components.data.source import Pair, Source
from components.errors import InputError
from components.settings import Settings

_MAX_PIXELS = 40_000_000


def _folder(settings: Settings) -> Path:
    folder = settings.prepare.folder
    if folder is None:
        raise InputError("params.yaml: prepare.source 'folder' needs prepare.folder: name the image folder there")
    if not folder.is_dir():
        raise InputError(f"image folder {folder} does not exist: correct prepare.folder in params.yaml")
    if not (folder / "captions.tsv").is_file():
        raise InputError(f"{folder / 'captions.tsv'} is missing: write one line per image, image<TAB>caption")
    return folder


def _rows(settings: Settings) -> list[tuple[int, str, str]]:
    """Line number, image name and caption of every row, checked."""
    path = _folder(settings) / "captions.tsv"
    rows = []
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    with io.StringIO(text, newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        if reader.fieldnames is None or not {"image", "caption"} <= set(reader.fieldnames):
            raise InputError(f"{path}: the first line must name the columns image and caption, separated by a tab")
        for row in reader:
            image, caption = row["image"] or "", (row["caption"] or "").strip()
            words = len(caption.split())
            if not caption:
                raise InputError(f"{path}: line {reader.line_num} ({image}) has an empty caption: write or remove it")
            if words > settings.prepare.max_caption_words:
                raise InputError(
                    f"{path}: line {reader.line_num} ({image}) has a caption of {words} words: shorten it or raise "
                    f"prepare.max_caption_words (now {settings.prepare.max_caption_words})"
                )
            rows.append((reader.line_num, image, caption))
    return rows


def _read_image(name: str, line: int, table: Path) -> bytes:
    path = table.parent / name
    if not path.resolve().is_relative_to(table.parent.resolve()) or not path.is_file():
        raise InputError(f"{table}: line {line} names {name}, which is not in {table.parent}: add or remove it")
    raw = path.read_bytes()
    try:
        with Image.open(io.BytesIO(raw)) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise InputError(f"{path} has {image.width}x{image.height} pixels: shrink it below {_MAX_PIXELS}")
            image.verify()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} is no readable image ({error}): replace or remove it") from None
    return raw


def _pairs(settings: Settings) -> Iterator[Pair]:
    folder, rows = _folder(settings), _rows(settings)
    counts = settings.prepare.counts
    wanted = counts.train + counts.val + counts.test
    if len(rows) < wanted:
        raise InputError(f"{folder / 'captions.tsv'} has {len(rows)} rows, prepare.counts wants {wanted}: lower them")
    random.Random(f"folder-{settings.world.seed}").shuffle(rows)
    splits = ["test"] * counts.test + ["val"] * counts.val + ["train"] * counts.train
    for split, (line, name, caption) in zip(splits, rows, strict=False):
        yield Pair(split, _read_image(name, line, folder / "captions.tsv"), caption)


def _total(settings: Settings) -> int:
    counts = settings.prepare.counts
    return counts.train + counts.val + counts.test


SOURCE = Source(pairs=_pairs, total=_total)
