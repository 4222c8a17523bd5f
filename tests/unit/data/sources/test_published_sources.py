"""Sources of published data sets: splits as published, every caption read, faults told in one line with the file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.settings import Settings
from components.core.system.discovery import names_in
from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.core.tables.records import SPLITS
from components.data.source import Pair, Unusable
from components.data.sources import find_source
from tests.unit.data.sources.published_folders import COUNTS, PUBLISHED, WRITERS, captions, picture, vector

SOURCES = "components.data.sources"
SHARED = Path(__file__).parents[5] / "shared" / "data" / "flickr8k"


@pytest.fixture
def settings(tmp_path: Path, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    """Writes a folder in a published format; returns settings that name it."""

    def make(name: str, **changes: Any) -> Settings:
        source, write = WRITERS[name]
        write(tmp_path / "set")
        found = {"source": source, "folder": str(tmp_path / "set"), "counts": COUNTS} | changes
        return Settings.model_validate(raw_params | {"prepare": raw_params["prepare"] | found})

    return make


@pytest.mark.parametrize("name", WRITERS)
def test_a_format_is_recognised_and_its_splits_and_captions_are_kept(name: str, settings: Any, tmp_path: Path) -> None:
    made = settings(name)
    source = find_source(WRITERS[name][0])
    assert [one for one in names_in(SOURCES) if find_source(one).found_in(tmp_path / "set")] == [WRITERS[name][0]]
    (tmp_path / "empty").mkdir()
    assert source.found_in(tmp_path / "empty") is None
    pairs: dict[str, list[Pair]] = {split: [] for split in SPLITS}
    for pair in source.usable(made, []):
        pairs[pair.split].append(pair)
    assert {split: len(found) for split, found in pairs.items()} == COUNTS
    images = {split: {pair.image_id for pair in found} for split, found in pairs.items()}
    shown = (lambda number: vector(number).tobytes()) if name == "embeddings" else picture
    published = {split: {image_id(shown(number)) for number in numbers} for split, numbers in PUBLISHED.items()}
    assert images["test"] == published["test"]
    if name == "coco":
        # COCO publishes no validation images: these are training images.
        assert images["train"] | images["val"] == published["train"] | published["val"]
        assert not images["train"] & images["val"]
    else:
        assert images == published
        assert {pair.caption for pair in pairs["train"]} == {
            text for number in PUBLISHED["train"] for text in captions(number)
        }
    queries = source.evaluation(made, pairs["test"])["caption_queries"][1].to_pylist()
    assert {query["text"] for query in queries} == {text for number in PUBLISHED["test"] for text in captions(number)}
    assert {query["image_id"] for query in queries} == images["test"]
    validated = source.evaluation(made, pairs["val"])["caption_queries"][1]
    assert set(validated["image_id"].to_pylist()) == images["val"]
    for split in SPLITS:
        counts = made.prepare.counts.model_copy(update={split: 50})
        wanted = made.model_copy(update={"prepare": made.prepare.model_copy(update={"counts": counts})})
        with pytest.raises(InputError, match=r"(?s)counts.* 50\b.*lower"):
            list(source.usable(wanted, []))


def test_images_in_no_split_are_left_out_and_counted(settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    list(find_source("flickr").usable(settings("flickr8k"), []))
    assert (
        "Flickr8k.token.txt: 1 images are in no published split and are left out, first 10.png"
        in capsys.readouterr().out
    )


def test_an_image_in_two_published_splits_does_not_train(
    settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = settings("flickr8k", counts=COUNTS | {"train": 10})
    shutil.copy(tmp_path / "set/Flicker8k_Dataset/8.png", tmp_path / "set/Flicker8k_Dataset/0.png")
    pairs = list(find_source("flickr").usable(made, []))
    twice = image_id(picture(8))
    assert {pair.split for pair in pairs if pair.image_id == twice} == {"test"}
    assert "1 images are published in two splits" in capsys.readouterr().out


def test_an_image_that_streams_twice_does_not_train(settings: Any, tmp_path: Path) -> None:
    made = settings("huggingface", counts=COUNTS | {"train": 10})
    path = tmp_path / "set/data/train-00000-of-00002.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[0]["image"]["bytes"] = picture(8)
    pq.write_table(pa.Table.from_pylist(rows), path)
    pairs = list(find_source("huggingface").usable(made, []))
    assert {pair.split for pair in pairs if pair.image_id == image_id(picture(8))} == {"test"}


def _change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


FAULTS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "cut token file": (
        "flickr8k",
        lambda folder: (folder / "Flickr8k.token.txt").write_text("0.png#0"),
        r"token\.txt: line 1 is not <image>#<n><TAB><caption>",
    ),
    "token file in another encoding": (
        "flickr8k",
        lambda folder: (folder / "Flickr8k.token.txt").write_bytes("0.png#0\tcafé".encode("latin-1")),
        r"token\.txt is not UTF-8 \(byte 11\)",
    ),
    "no split list": (
        "flickr8k",
        lambda folder: (folder / "Flickr_8k.devImages.txt").unlink(),
        r"Flickr_8k\.devImages\.txt is missing",
    ),
    "no images": ("flickr30k", lambda folder: shutil.rmtree(folder / "flickr30k-images"), "has no folder of images"),
    "an image is missing": (
        "flickr30k",
        lambda folder: (folder / "flickr30k-images" / "8.png").unlink(),
        r"images\[8\] names 8\.png, which is not in",
    ),
    "a picture is cut": (
        "flickr30k",
        lambda folder: (folder / "flickr30k-images" / "8.png").write_bytes(picture(8)[:40]),
        r"8\.png is not a readable image",
    ),
    "a link out of the folder": (
        "flickr30k",
        lambda folder: (
            (folder / "flickr30k-images" / "8.png").rename(folder.parent / "secret.png"),
            (folder / "flickr30k-images" / "8.png").symlink_to(folder.parent / "secret.png"),
        ),
        r"images\[8\] names 8\.png, which is a link to a file outside .* copy the picture",
    ),
    "cut JSON": (
        "coco_karpathy",
        lambda folder: (folder / "dataset_coco.json").write_text('{"images": ['),
        r"dataset_coco\.json is damaged",
    ),
    "JSON of another kind": (
        "coco_karpathy",
        lambda folder: (folder / "dataset_coco.json").write_text("[]"),
        r"dataset_coco\.json is not a JSON object",
    ),
    "no list": (
        "coco_karpathy",
        lambda folder: (folder / "dataset_coco.json").write_text("{}"),
        "has no list 'images'",
    ),
    "an unknown split": (
        "coco_karpathy",
        lambda folder: _change_json(folder / "dataset_coco.json", lambda raw: raw["images"][3].update(split="most")),
        r"images\[3\] has split 'most'",
    ),
    "a field of another kind": (
        "coco_karpathy",
        lambda folder: _change_json(folder / "dataset_coco.json", lambda raw: raw["images"][3].update(sentences="x")),
        r"images\[3\] is not as published \(sentences: ",
    ),
    "a name out of the folder": (
        "coco_karpathy",
        lambda folder: _change_json(
            folder / "dataset_coco.json", lambda raw: raw["images"][8].update(filepath="../..")
        ),
        r"images\[8\] names \.\./\.\./8\.png, which is not in",
    ),
    "an empty caption": (
        "coco",
        lambda folder: _change_json(
            folder / "annotations/captions_val2017.json", lambda raw: raw["annotations"][0].update(caption="  ")
        ),
        r"annotations\[0\] \(val2017/8\.png\) has an empty caption",
    ),
    "a caption of no image": (
        "coco",
        lambda folder: _change_json(
            folder / "annotations/captions_val2017.json", lambda raw: raw["annotations"][0].update(image_id=7)
        ),
        r"annotations\[0\] has an unknown image_id 7",
    ),
    "half of COCO": (
        "coco",
        lambda folder: (folder / "annotations/captions_val2017.json").unlink(),
        r"captions_val2017\.json is missing",
    ),
    "cut Parquet": (
        "huggingface",
        lambda folder: (folder / "data/test.parquet").write_bytes((folder / "data/test.parquet").read_bytes()[:-20]),
        r"test\.parquet is damaged",
    ),
    "no caption column": (
        "huggingface",
        lambda folder: pq.write_table(
            pq.read_table(folder / "data/test.parquet").drop_columns("caption"), folder / "data/test.parquet"
        ),
        r"test\.parquet has the columns image, license and none for the caption",
    ),
    "an image that is only named": (
        "huggingface",
        lambda folder: pq.write_table(
            pa.table({"image": [{"bytes": None, "path": "8.png"}], "caption": [["x"]]}), folder / "data/test.parquet"
        ),
        r"test\.parquet: row 1 has no image.*max_unusable_share",
    ),
    "a split of no known name": (
        "huggingface",
        lambda folder: pq.write_table(
            pq.read_table(folder / "data/test.parquet").append_column("split", [["fold 3"] * 2]),
            folder / "data/test.parquet",
        ),
        r"test\.parquet: row 1 has split 'fold 3': write train, val or test, or nothing",
    ),
    "no caption": (
        "huggingface",
        lambda folder: pq.write_table(
            pa.table({"image": [{"bytes": picture(8), "path": ""}], "caption": pa.array([[]], pa.list_(pa.string()))}),
            folder / "data/test.parquet",
        ),
        r"test\.parquet: row 1 has no caption",
    ),
    "nothing to train on": (
        "huggingface",
        lambda folder: [path.unlink() for path in (folder / "data").glob("train-*")],
        "has no training Parquet file",
    ),
}


def test_faults_are_reported_with_the_file(settings: Any, tmp_path: Path) -> None:
    for fault, (name, harm, message) in FAULTS.items():
        shutil.rmtree(tmp_path / "set", ignore_errors=True)
        made = settings(name)
        harm(tmp_path / "set")
        with pytest.raises(InputError) as caught:
            list(find_source(WRITERS[name][0]).usable(made, []))
        assert re.search(message, str(caught.value)), (fault, str(caught.value))
        assert "\n" not in str(caught.value)


def test_rows_that_lack_an_image_or_a_caption_are_left_out_and_counted(settings: Any, tmp_path: Path) -> None:
    made = settings("huggingface", max_unusable_share=0.4, counts=COUNTS | {"train": 6})
    path = tmp_path / "set/data/train-00000-of-00002.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[0]["image"], rows[1]["caption"], rows[2]["caption"] = None, None, ["a picture", None]
    pq.write_table(pa.Table.from_pylist(rows), path)
    unusable: list[Unusable] = []
    assert sum(pair.split == "train" for pair in find_source("huggingface").usable(made, unusable)) == 6
    missing = ["row 1 has no image", "row 2 has no caption", "row 3 has no caption"]
    assert [one.reason.partition(": ")[2].partition(":")[0] for one in unusable] == missing


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"Flickr8k is not in {SHARED}")
def test_flickr8k_itself(raw_params: dict[str, Any]) -> None:
    found = {"source": "flickr", "folder": str(SHARED), "counts": {"train": 29_990, "val": 1000, "test": 1000}}
    made = Settings.model_validate(raw_params | {"prepare": raw_params["prepare"] | found})
    pairs = list(find_source("flickr").usable(made, []))
    images = {split: {pair.image_id for pair in pairs if pair.split == split} for split in SPLITS}
    # One photograph is there twice among those to train on.
    assert {split: len(found) for split, found in images.items()} == {"train": 5999, "val": 1000, "test": 1000}
    assert len(set.union(*images.values())) == 7999


def test_a_picture_that_is_left_out_takes_no_place_of_another(settings: Any, tmp_path: Path) -> None:
    made = settings("flickr8k", counts={"train": 10, "val": 2, "test": 2}, max_unusable_share=0.5)
    (next((tmp_path / "set").rglob("3.png"))).write_bytes(b"no picture")
    unusable: list[Unusable] = []
    pairs = list(find_source("flickr").usable(made, unusable))
    assert len(unusable) == 1
    assert sum(pair.split == "train" for pair in pairs) == 10
