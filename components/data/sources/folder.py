"""Pairs from a folder on disk: images, and a file with the columns image, caption and optionally paraphrase and split.

The file is `captions.tsv`, `.csv`, `.jsonl` or `.parquet`, or `metadata.csv` or `.jsonl` of a Hugging Face image
folder, where the columns are file_name and text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.core.settings import Prepare
from components.data.listed_images import CaptionLine, Listing, checked_line, image_folder, listed_source
from components.data.row_files import RowFiles, texts_of
from components.data.source import split_of_word

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
    file = FILES.only(folder, _HOW)
    return Listing(file, folder, [_line(file, place, row, settings) for place, row in FILES.rows(file)])


def _line(file: Path, place: str, row: Mapping[str, Any], settings: Prepare) -> CaptionLine:
    image, caption, paraphrase = texts_of(file, place, row, "image", "caption", "paraphrase")
    line = CaptionLine(place, image, caption, paraphrase, split_of_word(f"{file}: {place}", row.get("split")))
    return checked_line(file, line, settings)


SOURCE = listed_source(read_listing, FILES.find, CAPTIONS, _HOW)
