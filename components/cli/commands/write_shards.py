"""Writes image-caption pairs as webdataset shards.

python -m components.cli.commands.write_shards --pairs data/pairs/train.parquet --output shards --per-shard 1000
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from more_itertools import chunked
from webdataset import TarWriter
from webdataset.tariterators import base_plus_ext

from components.core.pictures.rgb import open_picture
from components.core.pictures.shard_files import SIZES
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.system.errors import InputError, reported
from components.core.system.progress import track
from components.core.system.project import start
from components.core.tables.files import atomic_folder, write_json
from components.core.tables.records import PAIRS

_ENDINGS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}
"""Ending of a picture by Pillow's name of its format."""


def write_shards(pairs: Path, output: Path, per_shard: int) -> dict[str, int]:
    """Write `00000.tar`, ... with `<id>.png` (or jpg, webp) and `<id>.txt`, and `sizes.json`; returns the sizes.

    Duplicate pairs are left out. The same pairs give the same bytes. Shards in `output` are replaced.
    """
    if per_shard < 1:
        raise InputError(f"--per-shard is {per_shard}: give 1 or more")
    _check_output(output)
    total = PAIRS.count(pairs)
    rows = track(_distinct(pairs), "shards", total, "pair")
    sizes: dict[str, int] = {}
    with atomic_folder(output) as folder:
        for number, chunk in enumerate(chunked(rows, per_shard)):
            name = f"{number:05d}.tar"
            with (folder / name).open("wb") as stream, TarWriter(stream, encoder=False, mtime=0) as writer:
                for row in chunk:
                    writer.write(row)
            sizes[name] = len(chunk)
        write_json(folder / SIZES, sizes)
    return sizes


def _check_output(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file: name a folder for the shards")
    others = [path for path in output.glob("*") if path.suffix != ".tar" and path.name != SIZES]
    if others:
        raise InputError(f"{output} holds {others[0].name}, which is not a shard: name another folder or remove it")


def _distinct(pairs: Path) -> Iterator[dict[str, str | bytes]]:
    """A table's pairs as webdataset samples, read block by block because images of a large table fill the memory."""
    seen: set[str] = set()
    with Pictures() as pictures:
        for table in PAIRS.blocks(pairs, ["id", "caption", *PICTURE], 1_000):
            for row in table.to_pylist():
                if row["id"] not in seen:
                    seen.add(row["id"])
                    yield _sample(row, pictures.one(row), pairs)


def _sample(row: dict[str, Any], image: bytes, pairs: Path) -> dict[str, str | bytes]:
    key = str(row["id"])
    if base_plus_ext(f"{key}.txt") != (key, "txt") or "/" in key:
        raise InputError(f"{pairs}: id {key!r} cannot name files of a shard: use letters and digits")
    try:
        with open_picture(image) as opened:
            ending = _ENDINGS[str(opened.format)]
    except ValueError as error:
        raise InputError(
            f"{pairs}: the image of pair {key} cannot be written ({error}): replace it with a JPEG, PNG or WebP"
        ) from None
    return {"__key__": key, ending: image, "txt": str(row["caption"]).encode()}


@reported
def main(
    pairs: Annotated[Path, typer.Option(help="A table of pairs, such as data/pairs/train.parquet.")],
    output: Annotated[Path, typer.Option(help="Folder of the shards; shards in it are replaced.")],
    per_shard: Annotated[int, typer.Option(help="Pairs in a shard.")] = 1_000,
) -> None:
    """Write image-caption pairs as webdataset shards with their sizes.json."""
    sizes = write_shards(pairs, output, per_shard)
    print(f"wrote {sum(sizes.values())} pairs in {len(sizes)} shards to {output}")


if __name__ == "__main__":
    start(main)
