"""Pairs from a folder on disk: images, and a file with the columns image, caption and optionally paraphrase and split.

The file is `captions.tsv`, `.csv`, `.jsonl`, `.json` or `.parquet`, or `metadata` of a Hugging Face image folder, where
the columns are file_name and text; or there is one for each split, such as `train.csv` and `val.csv`. Without any, a
text file beside each image has its caption, see `components.data.row_files`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from components.core.pictures.folder import pictures_in
from components.core.settings import Prepare
from components.core.system.user_files import is_file
from components.data.listed_images import Listing, image_folder, listed_source
from components.data.row_fields import Row, RowFields, listed_pairs
from components.data.row_files import IMAGES, RowFiles, find_sidecar, sidecar_rows
from components.data.source import SPLIT_WORDS, Pair, Unusable

CAPTIONS = "captions.tsv"
FILES = RowFiles(
    names=("captions", "metadata"),
    roles={"image": IMAGES, "paraphrase": ("paraphrase",)},
    text="caption",
    texts="captions",
    by_split=True,
)
"""The files that may list a folder's images, and their columns."""
_HOW = "write one line per caption, image<TAB>caption"


def read_listing(settings: Prepare) -> Listing:
    """The folder's captions."""
    folder = image_folder(settings)
    fields = RowFields.of(settings)
    if not FILES.among(folder) and find_sidecar(folder) is not None:
        pictures = pictures_in(folder, settings.picture_bound)
        for note in pictures.notes:
            print(f"{folder}: {note}")
        rows = sidecar_rows(folder, pictures.names)
        return folder, list(listed_pairs(folder, rows, fields, settings))
    listed = list[Pair | Unusable]()
    for file, rows in listed_rows(folder, fields, settings):
        listed += listed_pairs(file, rows, fields, settings, SPLIT_WORDS.get(file.stem, ""))
    first = (one.image.name for one in listed if isinstance(one, Pair))
    return place_of_pictures(folder, list(islice(first, 1))), listed


def listed_rows(folder: Path, fields: RowFields, settings: Prepare) -> Iterator[tuple[Path, Iterator[Row]]]:
    """The files that list a folder's pictures, each with its rows, of which `image` names the picture."""
    files = FILES if fields.image is None else replace(FILES, roles={**FILES.roles, "image": (fields.image,)})
    for file in files.those(folder, _HOW, settings.list_bound):
        yield file, files.rows(file, fields.required())


def place_of_pictures(folder: Path, names: Sequence[str]) -> Path:
    """The folder that names of images are relative to: a subfolder `images` if only that has the first one."""
    first = [path for path in (folder, folder / "images") for name in names if is_file(path / name)]
    return first[0] if first else folder


def find(folder: Path) -> str | None:
    """See `Source`: a list of captions, or the first text beside an image."""
    return FILES.find(folder) or find_sidecar(folder)


SOURCE = listed_source(read_listing, find, CAPTIONS, _HOW, several=lambda folder: len(FILES.among(folder)) != 1)
