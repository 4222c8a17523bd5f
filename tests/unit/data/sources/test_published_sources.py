"""Sources of published data sets: splits as published, every caption read, faults told in one line with the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.settings import Settings
from components.core.system.discovery import names_in
from components.core.tables.files import image_id
from components.core.tables.records import SPLITS
from components.data.source import Unusable
from components.data.sources import find_source
from tests.unit.data.sources.published_folders import COUNTS, PUBLISHED, WRITERS, captions, picture, vector
from tests.unit.data.sources.reading import Damage, assert_refused, holding, pairs_of, prepare_settings, without

SOURCES = "components.data.sources"
SHARED = Path(__file__).parents[5] / "shared" / "data" / "flickr8k"


@pytest.fixture
def settings(tmp_path: Path, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    """Writes a folder in a published format; returns settings that name it."""

    def make(name: str, **changes: Any) -> Settings:
        source, write = WRITERS[name]
        write(tmp_path / "set")
        named = {"source": source, "folder": str(tmp_path / "set"), "counts": COUNTS}
        return prepare_settings(raw_params, **named | changes)

    return make


@pytest.mark.parametrize("name", WRITERS)
def test_a_format_is_recognised_and_its_splits_and_captions_are_kept(name: str, settings: Any, tmp_path: Path) -> None:
    made = settings(name)
    source = find_source(WRITERS[name][0])
    assert [one for one in names_in(SOURCES) if find_source(one).found_in(tmp_path / "set")] == [WRITERS[name][0]]
    (tmp_path / "empty").mkdir()
    assert source.found_in(tmp_path / "empty") is None
    pairs = {split: [pair for pair in pairs_of(made) if pair.split == split] for split in SPLITS}
    assert {split: len(found) for split, found in pairs.items()} == COUNTS
    images = {split: {pair.image_id for pair in found} for split, found in pairs.items()}
    shown = (lambda number: vector(number).tobytes()) if name == "embeddings" else picture
    published = {split: {image_id(shown(number)) for number in numbers} for split, numbers in PUBLISHED.items()}
    texts = {split: {text for one in numbers for text in captions(one)} for split, numbers in PUBLISHED.items()}
    assert images["test"] == published["test"]
    if name == "coco":
        # COCO publishes no validation images: these are training images.
        assert images["train"] | images["val"] == published["train"] | published["val"]
        assert not images["train"] & images["val"]
    else:
        assert images == published
        assert {pair.caption for pair in pairs["train"]} == texts["train"]
    queries = source.evaluation(made, pairs["test"])["caption_queries"][1].to_pylist()
    assert {query["text"] for query in queries} == texts["test"]
    assert {query["image_id"] for query in queries} == images["test"]
    validated = source.evaluation(made, pairs["val"])["caption_queries"][1]
    assert set(validated["image_id"].to_pylist()) == images["val"]
    for split in SPLITS:
        counts = made.prepare.counts.model_copy(update={split: 50})
        wanted = made.model_copy(update={"prepare": made.prepare.model_copy(update={"counts": counts})})
        assert_refused(wanted, r"counts.* 50\b.*lower")


def test_images_in_no_split_and_left_out_pictures_take_no_place(
    settings: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pairs_of(settings("flickr8k"))
    assert "token.txt: 1 images are in no published split and are left out, first 10.png" in capsys.readouterr().out
    made = settings("flickr8k", counts=COUNTS | {"train": 10}, max_unusable_share=0.5)
    (tmp_path / "set/Flicker8k_Dataset/3.png").write_bytes(b"no picture")
    unusable: list[Unusable] = []
    assert sum(pair.split == "train" for pair in pairs_of(made, unusable)) == 10
    assert len(unusable) == 1


def test_an_image_in_two_splits_does_not_train(
    settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = settings("flickr8k", counts=COUNTS | {"train": 10})
    shutil.copy(tmp_path / "set/Flicker8k_Dataset/8.png", tmp_path / "set/Flicker8k_Dataset/0.png")
    streamed = settings("huggingface", counts=COUNTS | {"train": 10})
    path = tmp_path / "set/data/train-00000-of-00002.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[0]["image"]["bytes"] = picture(8)
    pq.write_table(pa.Table.from_pylist(rows), path)
    for made in (listed, streamed):
        assert {pair.split for pair in pairs_of(made) if pair.image_id == image_id(picture(8))} == {"test"}
    assert "1 images are published in two splits" in capsys.readouterr().out


def json_with(name: str, key: str, place: int, **values: Any) -> Damage:
    """Changes an object in a list of a JSON file."""

    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        content[key][place].update(values)
        (folder / name).write_text(json.dumps(content))

    return change


def table_of(**columns: Any) -> Damage:
    """Gives the Parquet file of tests other columns."""
    return lambda folder: pq.write_table(pa.table(columns), folder / "data/test.parquet")


TOKENS, KARPATHY, COCO_TEST = "Flickr8k.token.txt", "dataset_coco.json", "annotations/captions_val2017.json"
SHOWN = [{"bytes": picture(8), "path": "8.png"}]
FAULTS: list[tuple[str, Damage, str]] = [
    ("flickr8k", holding(TOKENS, "0.png#0"), r"token\.txt: line 1 is not <image>#<n><TAB><caption>"),
    ("flickr8k", holding(TOKENS, "0.png#0\tcafé".encode("latin-1")), r"token\.txt is not UTF-8 \(byte 11\)"),
    ("flickr8k", without("Flickr_8k.devImages.txt"), r"Flickr_8k\.devImages\.txt is missing"),
    ("flickr30k", lambda folder: shutil.rmtree(folder / "flickr30k-images"), "has no folder of images"),
    ("flickr30k", without("flickr30k-images/8.png"), r"images\[8\] names 8\.png, which is not in"),
    ("flickr30k", holding("flickr30k-images/8.png", picture(8)[:40]), r"8\.png is not a readable image"),
    ("coco_karpathy", holding(KARPATHY, '{"images": ['), r"dataset_coco\.json is damaged \(Invalid JSON"),
    ("coco_karpathy", holding(KARPATHY, "{}"), r"\(images: Field required\): download it again"),
    ("coco_karpathy", json_with(KARPATHY, "images", 3, split="most"), r"images\[3\] has split 'most'"),
    ("coco_karpathy", json_with(KARPATHY, "images", 3, sentences="x"), r"is damaged \(images\.3\.sentences: "),
    ("coco_karpathy", json_with(KARPATHY, "images", 8, filepath="../.."), r"names \.\./\.\./8\.png, which is not in"),
    ("coco", json_with(COCO_TEST, "annotations", 0, image_id=7), r"annotations\[0\] has an unknown image_id 7"),
    ("coco", without(COCO_TEST), r"captions_val2017\.json is missing"),
    ("huggingface", holding("data/test.parquet", b"PAR1"), r"test\.parquet is damaged"),
    ("huggingface", table_of(image=SHOWN), r"test\.parquet has the columns image and none for 'caption'"),
    ("huggingface", table_of(image=[{"bytes": None, "path": "8.png"}], caption=[["x"]]), "row 1 has no image.*max_un"),
    ("huggingface", table_of(image=SHOWN, caption=["x"], split=["fold 3"]),
     "row 1 has split 'fold 3': write train, val or test, or nothing"),
    ("huggingface", table_of(image=SHOWN, caption=pa.array([[]], pa.list_(pa.string()))), "row 1 has an empty caption"),
    ("huggingface", lambda folder: [path.unlink() for path in (folder / "data").glob("train-*")], "has no training"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "message"), FAULTS)
def test_faults_name_the_file(settings: Any, tmp_path: Path, name: str, damage: Damage, message: str) -> None:
    made = settings(name)
    damage(tmp_path / "set")
    assert_refused(made, message)


def test_rows_that_lack_an_image_or_a_caption_are_left_out_and_counted(settings: Any, tmp_path: Path) -> None:
    made = settings("huggingface", max_unusable_share=0.4, counts=COUNTS | {"train": 7})
    path = tmp_path / "set/data/train-00000-of-00002.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[0]["image"], rows[1]["caption"], rows[2]["caption"] = None, None, ["a picture", None]
    pq.write_table(pa.Table.from_pylist(rows), path)
    unusable: list[Unusable] = []
    assert sum(pair.split == "train" for pair in pairs_of(made, unusable)) == 7
    missing = [("row 1 has no image", 1), ("row 2 has an empty caption", 0)]
    assert [(one.reason.partition(": ")[2].partition(":")[0], one.images) for one in unusable] == missing


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"Flickr8k is not in {SHARED}")
def test_flickr8k_itself(raw_params: dict[str, Any]) -> None:
    counts = {"train": 29_990, "val": 1000, "test": 1000}
    pairs = pairs_of(prepare_settings(raw_params, source="flickr", folder=str(SHARED), counts=counts))
    images = {split: {pair.image_id for pair in pairs if pair.split == split} for split in SPLITS}
    # One photograph is there twice among those to train on.
    assert {split: len(found) for split, found in images.items()} == {"train": 5999, "val": 1000, "test": 1000}
    assert len(set.union(*images.values())) == 7999
