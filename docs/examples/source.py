"""Write twelve drawn scenes in the layout that a source reads, and read them back as pairs.

    python docs/examples/source.py webdataset    # without a name: which layouts there are

A source declares the file by which its folder is known, and yields pairs in the same order for the same settings.
"""

import io
import json
import random
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from components.core.settings import Settings, load_settings
from components.data.source import Pair
from components.data.sources import find_source
from components.data.world.alt_text import alt_text
from components.data.world.drawing import draw
from components.data.world.scenes import draw_scenes

Write = Callable[[pd.DataFrame, Path], None]


def listed(file: str, columns: list[str], images: str = "") -> Write:
    def write(scenes: pd.DataFrame, folder: Path) -> None:
        (folder / images).mkdir(exist_ok=True)
        for name, picture in zip(scenes.image, scenes.picture, strict=True):
            (folder / images / name).write_bytes(picture)
        scenes[columns].rename(columns={"caption": "query"} if "clicks" in columns else {}).to_csv(folder / file)

    return write


def karpathy(file: str, images: str, **more: str) -> Write:
    def write(scenes: pd.DataFrame, folder: Path) -> None:
        listed("all.csv", ["image"], images)(scenes, folder)
        rows = zip(scenes.image, scenes.caption, ("test", "val", *["train"] * 10), strict=True)
        every = [{"filename": name, "split": split, "sentences": [{"raw": text}]} | more for name, text, split in rows]
        (folder / file).write_text(json.dumps({"images": every}))

    return write


def webdataset(scenes: pd.DataFrame, folder: Path) -> None:
    with tarfile.open(folder / "00000.tar", "w") as shard:
        for name, picture, text in zip(scenes.image, scenes.picture, scenes.caption, strict=True):
            for file, content in ((name, picture), (f"{Path(name).stem}.txt", text.encode())):
                member = tarfile.TarInfo(file)
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))


def huggingface(scenes: pd.DataFrame, folder: Path) -> None:
    images = [{"bytes": picture} for picture in scenes.picture]
    pd.DataFrame({"image": images, "caption": scenes.caption}).to_parquet(folder / "train-00000-of-00001.parquet")


def embeddings(scenes: pd.DataFrame, folder: Path) -> None:
    np.save(folder / "pictures.npy", np.random.default_rng(0).normal(size=(len(scenes), 8)))
    scenes[["caption"]].to_parquet(folder / "pictures.parquet")


LAYOUTS: dict[str, Write] = {
    "folder": listed("captions.csv", ["image", "caption"]),
    "query_log": listed("queries.csv", ["image", "caption", "clicks"]),
    "flickr": karpathy("dataset_flickr8k.json", "Flicker8k_Dataset"),
    "coco": karpathy("dataset_coco.json", "val2014", filepath="val2014"),
    "webdataset": webdataset,
    "huggingface": huggingface,
    "embeddings": embeddings,
}


def main(name: str) -> list[Pair]:
    """Write and read."""
    rows = [
        (f"{row}.png", draw(scene, str(row)), alt_text(scene, random.Random(row), 0.0), row + 1)
        for row, (_, scene) in enumerate(draw_scenes(0, {"train": 12, "val": 0, "test": 0}))
    ]
    with TemporaryDirectory() as made:
        LAYOUTS[name](pd.DataFrame(rows, columns=["image", "picture", "caption", "clicks"]), Path(made))
        print(*sorted(str(file.relative_to(made)) for file in Path(made).rglob("*")), sep="\n")
        raw = load_settings().model_dump(by_alias=True)
        raw["prepare"] |= {"source": name, "folder": made, "state": f"{made}/state"}
        raw["prepare"]["counts"] = {"train": 10, "val": 1, "test": 1}
        pairs = [found for found in find_source(name).pairs(Settings.model_validate(raw)) if isinstance(found, Pair)]
    for pair in pairs:
        print(f"{pair.split:5}  {pair.id}  {pair.weight or ''}  {pair.caption}")
    return pairs


if __name__ == "__main__":
    main(sys.argv[1]) if sys.argv[1:] else print(*LAYOUTS, sep="\n")
