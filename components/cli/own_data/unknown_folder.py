"""Describes a folder in no known format, and the way to have it read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from components.core.pictures.folder import is_ignored
from components.core.tables.parquet_rows import DAMAGED

_LOOKED_AT = 10_000
"""Files that are counted at most."""
_URLS = ("url", "image_url", "img_url", "URL", "image_link", "link")
_SHOWN = 6


def content_and_fix(folder: Path) -> str:
    """The folder's files by ending with the columns of a table, and what to do, in words."""
    names = (path for path in folder.rglob("*") if not is_ignored(str(path.relative_to(folder))))
    files = sorted(islice((path for path in names if path.is_file()), _LOOKED_AT))
    endings = Counter(path.suffix.lower() or "without ending" for path in files)
    has = ", ".join(f"{count:,} {ending}" for ending, count in endings.most_common(_SHOWN)) or "no files"
    table = next((path for path in files if path.suffix == ".parquet"), None)
    columns = _columns(table)
    shown = f"; {table.relative_to(folder)} has the columns {', '.join(columns)}" if table and columns else ""
    return f"it has {has}{shown}: {_fix(folder, files, table, columns)}"


def _fix(folder: Path, files: Iterable[Path], table: Path | None, columns: Sequence[str]) -> str:
    url = next((name for name in _URLS if name in columns), None)
    if table is not None and url is not None:
        return (
            f"it has URLs and no pictures, which img2dataset downloads: img2dataset --url_list {table} --input_format "
            f"parquet --url_col {url} --caption_col ... --output_format webdataset --output_folder ..."
        )
    if table is not None and columns:
        return "if it names pictures in this folder, rename it to captions.parquet; their column is named by --image"
    for path in files:
        if path.suffix == ".arrow":
            return (
                f"{path.name} is of the `datasets` library's save_to_disk: write Parquet files by load_from_disk(...)"
                ".to_parquet('train.parquet'), one for each split"
            )
        if path.parent == folder and path.suffix in (".csv", ".tsv", ".json", ".jsonl"):
            return f"rename {path.name} to captions{path.suffix}"
    return "write a captions.tsv into it, or have a model write it (--captions model)"


def _columns(table: Path | None) -> list[str]:
    try:
        return [] if table is None else list(pq.read_schema(table).names)
    except DAMAGED:
        return []
