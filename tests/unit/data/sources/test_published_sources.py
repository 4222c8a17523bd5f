"""Sources of published data sets: splits as published, every caption read, faults told in one line with the file."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from components.core.settings import Counts, Prepare, Settings
from components.core.system.discovery import names_in
from components.core.tables.files import image_id
from components.core.tables.records import SPLITS
from components.data.source import Pair, Unusable
from components.data.sources import find_source
from components.data.sources.query_log import read_listing
from tests.unit.data.sources import reading
from tests.unit.data.sources.published_folders import (
    COUNTS,
    PUBLISHED,
    WRITERS,
    captions,
    picture,
    vector,
    write_pictures,
)
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


def test_images_left_out_take_no_place(settings: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pairs_of(settings("flickr8k"))
    assert "token.txt: 1 images are in no published split and are left out, first 10.png" in capsys.readouterr().out
    made = settings("flickr8k", counts=COUNTS | {"train": 10}, max_unusable_share=0.5)
    (tmp_path / "set/Flicker8k_Dataset/3.png").write_bytes(b"no picture")
    unusable: list[Unusable] = []
    assert sum(pair.split == "train" for pair in pairs_of(made, unusable)) == 10
    assert len(unusable) == 1


def test_images_of_two_splits_never_train(settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


Rows = list[tuple[str, ...]]
HEADER = "query\timage\tweight"
ROWS: Rows = [
    ("red bus", "0.png", "9"),
    ("red bus", "1.png", "0.5"),
    ("a bus", "0.png", "3"),
    ("dog", "2.png", ""),
    ("dog, wet", "3.png", "2"),
    ("dog", "4.png", "1e2"),
    ("cat", "5.png", "7"),
]


Make = Callable[..., Settings]


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any]) -> Make:
    """Writes a folder of six images and the given rows; returns settings that name it."""

    def make(rows: Rows = ROWS, header: str = HEADER, **changes: Any) -> Settings:
        folder = tmp_path / "shop"
        write_pictures(folder, range(6))
        (folder / "queries.tsv").write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", "utf-8")
        counts = {"train": 4, "val": 1, "test": 1}
        named = {"source": "query_log", "folder": str(folder), "counts": counts}
        return reading.prepare_settings(raw_params, **named | changes)

    return make


def _split(rows: Rows, test: str = "0.png", val: str = "2.png") -> Rows:
    """The rows with a split each: of these two images, and of all others to train on."""
    split_of = {test: "test", val: "val"}
    return [(*row, split_of.get(row[1], "train")) for row in rows]


def _training_weights(settings: Settings) -> dict[tuple[str, str], float]:
    """Query and image -> weight."""
    return {(pair.caption, pair.image_id): pair.weight for pair in pairs_of(settings) if pair.split == "train"}


def test_weights_come_with_the_pairs_and_other_columns_are_not_read(world: Make, tmp_path: Path) -> None:
    rows = [row for pairs in reading.prepared(world(), tmp_path).values() for row in pairs]
    weights = {(query, image_id(picture(int(image[0])))): float(weight or 1) for query, image, weight in ROWS}
    assert all(weights[row["caption"], row["image_id"]] == row["weight"] for row in rows)
    assert len(rows) >= 6
    assert pairs_of(world([(*row, "7") for row in ROWS], "query\timage\tclicks\tsession")) == pairs_of(world())


def test_the_strongest_query_of_a_tested_image_is_its_pair_and_all_are_queries(world: Make, tmp_path: Path) -> None:
    (tested,) = reading.prepared(world(_split(ROWS), f"{HEADER}\tsplit"), tmp_path)["test"]
    assert (tested["caption"], tested["weight"]) == ("red bus", 9)
    queries = {(query["text"], query["image_id"]) for query in reading.caption_queries(tmp_path)}
    assert queries == {("red bus", tested["image_id"]), ("a bus", tested["image_id"])}


def test_lines_of_one_query_and_image_add_up_in_one_split(world: Make) -> None:
    rows = [*ROWS, ("cat", "5.png", "2"), (" cat ", "5.png", ""), ("Cat", "5.png", "4")]
    found = _training_weights(world(_split(rows), f"{HEADER}\tsplit", counts={"train": 5, "val": 1, "test": 1}))
    assert (found["cat", image_id(picture(5))], found["Cat", image_id(picture(5))]) == (10, 4)
    assert found["red bus", image_id(picture(1))] == 0.5
    rows = [*_split(ROWS), ("cat", "5.png", "1", "val")]
    pairs = pairs_of(world(rows, f"{HEADER}\tsplit", counts={"train": 3, "val": 2, "test": 1}))
    assert [(pair.split, pair.weight) for pair in pairs if pair.image_id == image_id(picture(5))] == [("val", 8)]


def test_a_copy_of_an_image_has_its_clicks_too(world: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = world(_split([*ROWS, ("cat", "copy.png", "5")]), f"{HEADER}\tsplit")
    shutil.copy(tmp_path / "shop" / "5.png", tmp_path / "shop" / "copy.png")
    assert _training_weights(settings)["cat", image_id(picture(5))] == 12
    assert "queries.tsv: 1 lines left out that repeat the image and the caption of another" in capsys.readouterr().out


LINES = st.lists(
    st.tuples(
        st.sampled_from(["dog", "cat", "red bus", "Dog"]),
        st.sampled_from([f"{number}.png" for number in range(6)]),
        st.floats(1e-3, 1e12),
        st.sampled_from(["", "train", "test"]),
    ),
    min_size=1,
    max_size=30,
)


@given(LINES, st.randoms(use_true_random=False))
@examples(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_order_of_lines_does_not_matter(tmp_path: Path, lines: Rows, rng: random.Random) -> None:
    """Sums of floats depend on the order of summing in their last digits."""
    shuffled = rng.sample(lines, len(lines))
    one, other = (_listed(tmp_path, rows) for rows in (lines, shuffled))
    assert one == other
    exact: dict[tuple[str, str, str], Fraction] = {}
    for query, image, weight, split in lines:
        exact[image, query, split] = exact.get((image, query, split), Fraction(0)) + Fraction(weight)
    assert {place[:3]: place[3] for place in one} == {key: float(total) for key, total in exact.items()}


def _listed(folder: Path, rows: Rows) -> list[tuple[str, str, str, float | None]]:
    names = ("query", "image", "weight", "split")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    settings = Prepare(source="query_log", counts=Counts(train=1, val=1, test=1), folder=folder)
    return [
        (one.image.name, one.caption, one.split, one.weight)
        for one in read_listing(settings)[1]
        if isinstance(one, Pair)
    ]


def test_a_weight_that_is_not_a_number_above_zero_is_named_with_its_line(world: Make, tmp_path: Path) -> None:
    for weight in ("0", "-1", "nan", "inf", "1e999", "many", "3 or 4", "1e301"):
        settings = world([*ROWS[:2], ("a bus", "0.png", weight), *ROWS[3:]])
        assert_refused(settings, rf"queries\.tsv: line 4 has weight '{weight}': write a number above 0")
    settings = world()
    (tmp_path / "shop" / "queries.tsv").unlink()
    for weight, shown in (("true", "True"), ("[1]", r"\[1\]"), ("NaN", "nan"), ("1" + "0" * 400, "10000")):
        line = f'{{"query": "dog", "image": "2.png", "weight": {weight}}}\n'
        (tmp_path / "shop" / "queries.jsonl").write_text(line)
        assert_refused(settings, rf"queries\.jsonl: line 1 has weight '{shown}")


def test_faults_are_reported_in_one_line(world: Make, tmp_path: Path) -> None:
    """Those that source `folder` reports in the same way are tested there."""
    for harm, message in [
        (without("queries.tsv"), r"queries\.tsv is missing: write one line"),
        (holding("queries.tsv", "dog\t0.png\n"), r"dog, 0\.png and none for 'image': .*by a tab"),
        (holding("queries.tsv", "query\timage\tclicks\tweight\n"), "names the column weight twice"),
        (holding("3.png", b"no picture"), r"3\.png is not a readable image"),
    ]:
        settings = world()
        harm(tmp_path / "shop")
        assert_refused(settings, message)
