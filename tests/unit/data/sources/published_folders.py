"""Small folders in the formats in which data sets of captioned images are published."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.support.shard_making import write_tar

Rows = Sequence[Mapping[str, Any]]
"""Fields of rows; `picture` is the number of the picture, by default that of the row."""
PUBLISHED = {"train": range(6), "val": range(6, 8), "test": range(8, 10)}
COUNTS = {"train": 12, "val": 2, "test": 2}


def picture(number: int) -> bytes:
    """A PNG that no other number has."""
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (number % 256, number // 256, 0)).save(buffer, format="PNG")
    return buffer.getvalue()


def captions(number: int) -> list[str]:
    """Two people's captions of a picture; Python's `splitlines` would end a line within the second."""
    return [f"picture {number} .", f"number {number} in\u2028red ."]


def write_pictures(folder: Path, numbers: Any = range(10)) -> None:
    """`<number>.png` of each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"{number}.png").write_bytes(picture(number))


def write_flickr8k(folder: Path) -> None:
    """Token file, split lists and images; an eleventh image is in no split."""
    write_pictures(folder / "Flicker8k_Dataset")
    names = {"train": "train", "val": "dev", "test": "test"}
    for split, numbers in PUBLISHED.items():
        listed = "".join(f"{number}.png\n" for number in numbers)
        (folder / f"Flickr_8k.{names[split]}Images.txt").write_text(listed)
    lines = [f"{number}.png#{take}\t{text}" for number in range(11) for take, text in enumerate(captions(number))]
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")


def karpathy(filepath: dict[str, str] | None = None) -> dict[str, Any]:
    """A split file of Karpathy's; the last image to train on is in `restval`."""
    images = []
    for split, numbers in PUBLISHED.items():
        for number in numbers:
            named = "restval" if number == 5 else split
            image: dict[str, Any] = {"filename": f"{number}.png", "split": named, "imgid": number}
            image["sentences"] = [{"raw": text, "tokens": text.split()} for text in captions(number)]
            images.append(image | ({"filepath": filepath[split]} if filepath else {}))
    return {"dataset": "flickr30k", "images": images}


def write_flickr30k(folder: Path) -> None:
    """Karpathy's file and images."""
    write_pictures(folder / "flickr30k-images")
    (folder / "dataset_flickr30k.json").write_text(json.dumps(karpathy()))


def write_coco_karpathy(folder: Path) -> None:
    """Karpathy's file, and images in the folders of COCO's own splits."""
    places = {"train": "train2014", "val": "val2014", "test": "val2014"}
    for split, numbers in PUBLISHED.items():
        write_pictures(folder / places[split], numbers)
    (folder / "dataset_coco.json").write_text(json.dumps(karpathy(places)))


def write_coco(folder: Path) -> None:
    """COCO's annotations; what validates above is among what trains, and tests is COCO's `val2017`."""
    for part, numbers in (("train2017", range(8)), ("val2017", range(8, 10))):
        write_pictures(folder / part, numbers)
        images = [{"id": 100 + number, "file_name": f"{number}.png", "height": 16} for number in numbers]
        rows = [{"image_id": 100 + number, "id": 1, "caption": text} for number in numbers for text in captions(number)]
        path = folder / "annotations" / f"captions_{part}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"images": images, "annotations": rows}))


def write_huggingface(folder: Path, held_out: tuple[str, str] = ("validation", "test")) -> None:
    """Parquet files by split, images as the hub stores them, two files to train on."""
    files = {"train-00000-of-00002": range(3), "train-00001-of-00002": range(3, 6)}
    (folder / "data").mkdir(parents=True)
    for name, numbers in {**files, held_out[0]: PUBLISHED["val"], held_out[1]: PUBLISHED["test"]}.items():
        images = [{"bytes": picture(number), "path": f"{number}.png"} for number in numbers]
        texts = [captions(number) for number in numbers]
        table = pa.table({"image": images, "caption": texts, "license": ["none"] * len(numbers)})
        pq.write_table(table, folder / "data" / f"{name}.parquet")


SAID = {"train": "Training", "val": "valid", "test": " TEST "}
"""Split -> a publisher's word for it."""


def _rows(*splits: str, said: bool = True) -> Rows:
    """A row for each caption of these splits, with its split as said."""
    return [
        {"picture": number, "caption": text} | ({"split": SAID[split]} if said else {})
        for split in splits
        for number in PUBLISHED[split]
        for text in captions(number)
    ]


def write_huggingface_rows(folder: Path) -> None:
    """One Parquet file, named after one split, with a column of splits."""
    rows_as_parquet(folder, _rows("test", "train", "val"))
    (folder / "train-00000.parquet").rename(folder / "test-00000.parquet")


def write_webdataset(folder: Path, shard: str = "set-{}-00000.tar") -> None:
    """img2dataset's shards, a sample for each caption."""
    for split in PUBLISHED:
        rows_as_shard(folder, _rows(split, said=False), shard.format(SAID[split].strip()))


def vector(number: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """An embedding that no other number has."""
    return np.array([1, number], np.float32)


def _names(rows: Rows) -> list[str]:
    return [f"{row.get('picture', number)}.png" for number, row in enumerate(rows)]


def rows_as_jsonl(folder: Path, rows: Rows) -> None:
    write_pictures(folder, range(len(rows)))
    lines = [json.dumps({"image": name, **row}) + "\n" for name, row in zip(_names(rows), rows, strict=True)]
    (folder / "captions.jsonl").write_text("".join(lines))


def rows_as_json(folder: Path, rows: Rows) -> None:
    write_pictures(folder, range(len(rows)))
    listed = [{"image": name, **row} for name, row in zip(_names(rows), rows, strict=True)]
    (folder / "metadata.json").write_text(json.dumps(listed))


def rows_above_images(folder: Path, rows: Rows) -> None:
    """LLaVA's layout: the list beside a folder `images`, whose name it leaves out."""
    rows_as_json(folder, rows)
    (folder / "images").mkdir()
    for path in folder.glob("*.png"):
        path.rename(folder / "images" / path.name)


def rows_as_list(folder: Path, rows: Rows) -> None:
    write_pictures(folder, range(len(rows)))
    listed = [{"file_name": name, **row} for name, row in zip(_names(rows), rows, strict=True)]
    pq.write_table(pa.Table.from_pylist(listed), folder / "captions.parquet")


def rows_beside(folder: Path, rows: Rows) -> None:
    (folder / "00000").mkdir(parents=True)
    for number, row in enumerate(rows):
        (folder / "00000" / f"{number}.png").write_bytes(picture(row.get("picture", number)))
        (folder / "00000" / f"{number}.json").write_text(json.dumps(row))


def rows_as_parquet(folder: Path, rows: Rows) -> None:
    folder.mkdir(parents=True)
    listed = [
        {"image": {"bytes": picture(row.get("picture", number)), "path": None}, **row}
        for number, row in enumerate(rows)
    ]
    pq.write_table(pa.Table.from_pylist(listed), folder / "train-00000.parquet", row_group_size=5)


def rows_as_shard(folder: Path, rows: Rows, shard: str = "00000.tar") -> None:
    samples = [
        member
        for number, row in enumerate(rows)
        for member in (
            (f"{number:09d}.png", picture(row.get("picture", number))),
            (f"{number:09d}.json", b"\xef\xbb\xbf" + json.dumps(row).encode()),
        )
    ]
    write_tar(folder / shard, samples)


def rows_with_vectors(folder: Path, rows: Rows) -> None:
    """As `cliptune init --index` copies a database: vectors with the fields of their rows."""
    folder.mkdir(parents=True)
    listed = [{"key": str(number), "image_path": "", **row} for number, row in enumerate(rows)]
    vectors = [vector(row.get("picture", number)).tolist() for number, row in enumerate(rows)]
    table = pa.Table.from_pylist(listed).append_column("embedding", pa.array(vectors, pa.list_(pa.float32())))
    pq.write_table(table, folder / "vectors_000000.parquet")


def write_query_log(folder: Path) -> None:
    """Images, and a log in which every click is a line."""
    write_pictures(folder)
    clicks = [(number, text, split) for split in PUBLISHED for number in PUBLISHED[split] for text in captions(number)]
    lines = [f"{text}\t{number}.png\t{split}" for number, text, split in [*clicks, *clicks[1::2]]]
    (folder / "queries.tsv").write_text("\n".join(["query\timage\tsplit", *lines]) + "\n")


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "flickr8k": ("flickr", write_flickr8k),
    "flickr30k": ("flickr", write_flickr30k),
    "coco_karpathy": ("coco", write_coco_karpathy),
    "coco": ("coco", write_coco),
    "huggingface": ("huggingface", write_huggingface),
    "huggingface_names": ("huggingface", partial(write_huggingface, held_out=("Valid_00000", "set_eval_0"))),
    "huggingface_rows": ("huggingface", write_huggingface_rows),
    "embeddings": ("embeddings", lambda folder: rows_with_vectors(folder, _rows("test", "train", "val"))),
    "webdataset": ("webdataset", write_webdataset),
    "webdataset_folders": ("webdataset", partial(write_webdataset, shard="{}/00000.tar")),
    "webdataset_json": ("webdataset", lambda folder: rows_as_shard(folder, _rows("test", "train", "val"))),
    "query_log": ("query_log", write_query_log),
}
"""Format -> the source that reads it, and what writes a small folder of it."""
