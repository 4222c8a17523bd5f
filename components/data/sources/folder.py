"""Pairs from a folder on disk: images, and a file with the columns image, caption and optionally paraphrase and split.

The file is `captions.tsv`, `.csv`, `.jsonl` or `.parquet`, or `metadata.csv` or `.jsonl` of a Hugging Face image
folder, where the columns are file_name and text. `prepare.text` makes the caption of other columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.core.settings import Prepare
from components.data.listed_images import CaptionLine, Listing, checked_line, image_folder, listed_source
from components.data.row_files import RowFiles, texts_of
from components.data.source import split_of_word
from components.data.text_template import TextTemplate

CAPTIONS = "captions.tsv"
FILES = RowFiles(
    files=(CAPTIONS, "captions.csv", "captions.jsonl", "captions.parquet", "metadata.csv", "metadata.jsonl"),
    required=("image", "caption"),
    optional=("paraphrase", "split"),
    names={"file_name": "image", "filepath": "image", "text": "caption", "title": "caption"},
    text="caption",
    texts="captions",
)
"""The files that may list a folder's images, and their columns."""
_HOW = "write one line per caption, image<TAB>caption"


def read_listing(settings: Prepare) -> Listing:
    """The folder's captions.

    Raises:
        InputError: the folder or the file is missing, or as `RowFiles.only`, `RowFiles.rows` and `checked_caption`.
    """
    folder = image_folder(settings)
    template = TextTemplate(settings.text) if settings.text is not None else None
    files = _files(template, settings.item)
    file = files.only(folder, _HOW, settings.list_bound)
    lines = [_line(file, place, row, settings, template) for place, row in files.rows(file)]
    return Listing(file, folder, lines)


def _files(template: TextTemplate | None, item: str | None) -> RowFiles:
    """The files with the columns that the settings require."""
    files = FILES
    if template is not None:
        # `title` is a column of its own then, and not the caption.
        names = {name: column for name, column in FILES.names.items() if column == "image"}
        files = replace(FILES, required=("image", *template.columns), names=names)
    return files if item is None else replace(files, required=(*files.required, item))


def _line(
    file: Path, place: str, row: Mapping[str, Any], settings: Prepare, template: TextTemplate | None
) -> CaptionLine:
    if template is not None:
        row = {**row, "caption": template.of(row)}
    image, caption, paraphrase = texts_of(file, place, row, "image", "caption", "paraphrase")
    split = split_of_word(f"{file}: {place}", row.get("split"))
    item = "" if settings.item is None else str(row.get(settings.item) or "").strip()
    return checked_line(file, CaptionLine(place, image, caption, paraphrase, split, item=item), settings)


SOURCE = listed_source(read_listing, FILES.find, CAPTIONS, _HOW)
