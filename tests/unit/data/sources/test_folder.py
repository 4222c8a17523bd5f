"""Pairs from a folder: faults are said with file and line, and the images of a listing become splits."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.compute.provenance import path_hash
from components.core.settings import Counts, Settings
from components.core.tables.records import PAIRS, PARAPHRASE_QUERIES, SPLITS, UNUSABLE
from components.data import prepare
from components.data.listed_images import share
from components.data.source import Pair, Sample, Source
from tests.support.tracked_runs import find_runs
from tests.unit.data.sources.published_folders import picture, write_pictures
from tests.unit.data.sources.reading import assert_refused, caption_queries, pairs_of, prepare_settings, prepared

Rows = list[tuple[str, ...]]
ROWS: Rows = [(f"{number}.png", f"picture number {number}") for number in range(6)]


Make = Callable[..., Settings]


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any]) -> Make:
    """Writes a folder of six images and the given rows; returns settings that name it."""

    def make(rows: Rows = ROWS, header: str = "image\tcaption", **changes: Any) -> Settings:
        folder = tmp_path / "pictures"
        write_pictures(folder, range(6))
        lines = [header, *("\t".join(row) for row in rows)]
        (folder / "captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        counts = {"train": 4, "val": 1, "test": 1}
        return prepare_settings(raw_params, **{"source": "folder", "folder": str(folder), "counts": counts} | changes)

    return make


def test_prepare_writes_the_splits(world: Make, tmp_path: Path, track_in: Callable[[Path], None]) -> None:
    track_in(tmp_path)
    settings = world()
    prepare.run_tracked(settings)
    rows = {split: PAIRS.read(Path(f"data/pairs/{split}.parquet")).num_rows for split in SPLITS}
    assert rows == {"train": 4, "val": 1, "test": 1}
    [tracked] = find_runs(settings.dataset.name, "prepare")
    assert rows.items() <= tracked.data.metrics.items()
    assert tracked.data.tags["output.pairs.sha256"] == path_hash(Path("data/pairs"))


def test_splits_share_no_image_and_written_paraphrases_become_queries(world: Make, tmp_path: Path) -> None:
    rows = [(name, f"{text} {take}") for take in range(3) for name, text in ROWS]
    counts = {"train": 6, "val": 2, "test": 2}
    splits = prepared(world(rows, counts=counts), tmp_path)
    assert {split: len(pairs) for split, pairs in splits.items()} == counts
    images = {split: {pair["image_id"] for pair in pairs} for split, pairs in splits.items()}
    assert [len(images[split]) for split in SPLITS] == [2, 2, 2]
    assert len(set.union(*images.values())) == 6
    texts = {pair["image_id"]: pair["caption"].rpartition(" ")[0] for pair in splits["test"]}
    queries = [(query["image_id"], query["text"]) for query in caption_queries(tmp_path)]
    assert sorted(queries) == sorted((image, f"{text} {take}") for image, text in texts.items() for take in range(3))
    assert not (tmp_path / "evaluation" / "paraphrase_queries.parquet").exists()
    rows = [(name, text, f"photo of {text}" if number % 2 else "") for number, (name, text) in enumerate(ROWS)]
    counts = {"train": 1, "val": 1, "test": 4}
    tested = prepared(world(rows, "image\tcaption\tparaphrase", counts=counts), tmp_path)["test"]
    found = PARAPHRASE_QUERIES.read(tmp_path / "evaluation" / "paraphrase_queries.parquet").to_pylist()
    expected = {(pair["image_id"], pair["caption"]) for pair in tested if int(pair["caption"][-1]) % 2}
    assert {(row["image_id"], row["query"]) for row in found} == expected
    assert {row["paraphrase"] for row in found} == {f"photo of {caption}" for _, caption in expected}


def test_wrong_rows_and_headers_and_too_few_rows_are_named(world: Make, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(picture(9))
    for row, message in (
        (("gone.png", "a picture"), r"line 5 names gone\.png"),
        (("../secret.png", "a picture"), r"line 5 names .*secret\.png"),
        (("a\0b.png", "a picture"), r"line 5 names a.b\.png"),
        (("x" * 5000, "a picture"), r"line 5 names x+, which cannot be read \(File name too long\)"),
        ((str(tmp_path / "secret.png"), "a picture"), r"line 5 names .*secret\.png"),
        (("1.png", "x" * 140_000), r"line 5 cannot be read \(.*\): shorten or remove it"),
        # A tab within a caption would truncate it.
        (("1.png",), r"line 5 has 1 fields, the first line 2: write"),
        (("1.png", "a picture", "of a tab"), r"line 5 has 3 fields, the first line 2: write"),
    ):
        assert_refused(world([*ROWS[:3], row, *ROWS[4:]]), rf"captions\.tsv: {message}")
    wanted = "1 test images, 1 validation images and 4 lines of the other images"
    assert_refused(world(ROWS[:5]), rf"\.tsv has 5 lines of 5 images; .* {wanted}")
    rows = [(*row, "x", "y") for row in ROWS]
    for header, message in (
        ("file\tname\ta\tb", "has the columns file, name, a, b and none for 'caption': call one caption"),
        ("image\tcaption\tcaption\tnote", "names the column caption twice"),
        ("image\tcaption\tparaphrase\tparaphrase", "names the column paraphrase twice"),
    ):
        assert_refused(world(rows, header), rf"captions\.tsv {message}")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("3.png", "   "), r"line 8 has an empty caption: write"),
        (("3.png", "\u200b \u2060"), r"line 8 \(3\.png\) has an empty caption"),
        (("3.png", "word " * 500), r"line 8 \(3\.png\) has a caption of 500 words"),
        (("3.png", "x" * 2001), r"line 8 \(3\.png\) has a caption of 2001 letters, at most 2000 are allowed"),
        (("", "a picture"), "line 8 names no image"),
    ],
)
def test_rows_without_a_text_are_left_out(row: tuple[str, str], message: str, world: Make, tmp_path: Path) -> None:
    splits = prepared(world([*ROWS, row]), tmp_path)
    assert sorted(pair["caption"] for split in SPLITS for pair in splits[split]) == sorted(text for _, text in ROWS)
    (reason,) = UNUSABLE.read(tmp_path / "pairs" / "unusable.parquet")["reason"].to_pylist()
    assert re.search(message, reason)


def test_a_name_that_is_spelled_otherwise_is_the_same_picture(world: Make, tmp_path: Path) -> None:
    before = [pair.id for pair in pairs_of(world())]
    assert [pair.id for pair in pairs_of(world([(f"./{name}", text) for name, text in ROWS]))] == before
    settings = world([(f"pictures/{name}", text) for name, text in ROWS], folder=str(tmp_path))
    (tmp_path / "pictures" / "captions.tsv").rename(tmp_path / "captions.tsv")
    assert [pair.id for pair in pairs_of(settings)] == before


def test_missing_and_damaged_files(world: Make, tmp_path: Path) -> None:
    assert_refused(world(folder=str(tmp_path / "nowhere")), r"image folder .*nowhere does not exist")
    assert_refused(world(folder=None), r"needs prepare\.folder")
    settings, folder = world(), tmp_path / "pictures"
    (folder / "captions.csv").write_text("image,caption\n")
    assert_refused(settings, r"has captions\.tsv and captions\.csv: keep the one")
    (folder / "captions.csv").unlink()
    (folder / "captions.tsv").unlink()
    assert_refused(settings, r"captions\.tsv is missing")
    for name, content, message in (
        ("captions.tsv", "image\tcaption\n0.png\tcafé\n".encode("latin-1"), "is not UTF-8"),
        ("captions.parquet", b"PAR1 and nothing else", "is damaged"),
        ("captions.csv", b"image,caption\n0.png,one, two\n", "line 2 has 3 fields, the first line 2: quote captions"),
        ("captions.jsonl", b'{"image": "0.png", "caption": "a"}\n{"image":', "line 2 is not JSON"),
        ("captions.jsonl", b'{"image": ' + b"9" * 5000 + b"}\n", "line 1 is not JSON"),
        ("captions.jsonl", b"[" * 200_000 + b"\n", "line 1 is not JSON"),
        ("captions.jsonl", b"[1]\n", "line 1 is not a JSON object"),
        ("captions.jsonl", b'{"image": "0.png", "caption": "\\ud800"}\n', "has a caption with half a letter"),
        ("captions.jsonl", b'{"image": "0.png"}\n', "has the columns image and none for 'caption'"),
        ("captions.jsonl", b'{"image": "0.png", "caption": 3}\n', "line 1 has an empty caption"),
        ("captions.jsonl", b'{"image": 3, "caption": "a"}\n', "line 1 has no text as image"),
        ("captions.json", b'{"image": 3}', "is not a JSON list"),
        ("captions.json", b'["a"]', "object 1 is not a JSON object"),
        ("captions.jsonl", b'{"image": "0.png", "caption": "a", "split": "most"}\n', "line 1 has split 'most'"),
    ):
        (folder / name).write_bytes(content)
        assert_refused(settings, f"{name}.* {message}")
        (folder / name).unlink()


def test_every_format_gives_the_same_pairs_and_spreadsheets_their_texts(world: Make, tmp_path: Path) -> None:
    settings = world([("0.png", '"He said ""hi"", ok"'), ("1.png", '"Stop" on a sign'), *ROWS[2:]])
    table = tmp_path / "pictures" / "captions.tsv"
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes().replace(b"\n", b"\r\n"))
    read = ['He said "hi", ok', '"Stop" on a sign', *(caption for _, caption in ROWS[2:])]
    assert sorted(pair.caption for pair in pairs_of(settings)) == sorted(read)
    settings, folder = world(TEXTS), tmp_path / "pictures"
    expected = pairs_of(settings)
    (folder / "captions.tsv").unlink()
    for name, text in FORMATS.items():
        (folder / name).write_text(text)
        assert pairs_of(settings) == expected, name
        (folder / name).unlink()
    pq.write_table(pa.Table.from_pylist(NAMED), folder / "captions.parquet")
    assert pairs_of(settings) == expected


@pytest.mark.parametrize("seed", range(3))
def test_one_picture_under_three_names_is_in_one_split(world: Make, tmp_path: Path, seed: int) -> None:
    settings = world([*ROWS, ("./0.png", "the first again"), ("copy.png", "a copy of the first")])
    settings = settings.model_copy(update={"dataset": settings.dataset.model_copy(update={"seed": seed})})
    shutil.copy(tmp_path / "pictures" / "0.png", tmp_path / "pictures" / "copy.png")
    splits = prepared(settings, tmp_path)
    for pair in (pair for pairs in splits.values() for pair in pairs):
        assert hashlib.sha256(Path(pair["file"]).read_bytes()).hexdigest()[:16] == pair["image_id"]
    images = [{pair["image_id"] for pair in pairs} for pairs in splits.values()]
    assert sum(map(len, images)) == len(set.union(*images))
    first = hashlib.sha256((tmp_path / "pictures" / "0.png").read_bytes()).hexdigest()[:16]
    texts = {query["text"] for query in caption_queries(tmp_path) if query["image_id"] == first}
    assert texts in (set(), {"picture number 0", "the first again", "a copy of the first"})


def test_repeated_lines_are_left_out(world: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = world([*ROWS, *ROWS, ("copy.png", ROWS[3][1])])
    shutil.copy(tmp_path / "pictures" / "3.png", tmp_path / "pictures" / "copy.png")
    splits = prepared(settings, tmp_path)
    assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 4, "val": 1, "test": 1}
    assert {pair["caption"] for pairs in splits.values() for pair in pairs} == {text for _, text in ROWS}
    assert len(caption_queries(tmp_path)) == 1
    assert "captions.tsv: 7 lines left out that repeat the image and the caption of another" in capsys.readouterr().out


def test_an_image_of_two_splits_is_of_the_first(world: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a source gives: the captions may differ, and the names."""
    rows = [("test", "one.png", "a dog"), ("train", "copy.png", "one hound"), ("val", "copy.png", "a dog")]
    pairs = [Pair(split, Sample.of(b"picture"), caption, name=name) for split, name, caption in rows]
    source = Source(pairs=lambda _settings: iter([*pairs, Pair("train", Sample.of(b"other"), "a cat")]))
    monkeypatch.setattr(prepare, "find_source", lambda _name: source)
    found = {split: [pair["caption"] for pair in pairs] for split, pairs in prepared(world(), tmp_path).items()}
    assert found == {"train": ["a cat"], "val": [], "test": ["a dog"]}
    reasons = UNUSABLE.read(tmp_path / "pairs" / "unusable.parquet")["reason"].to_pylist()
    assert reasons == [f"image copy.png of split {split} is also in split test" for split in ("train", "val")]


# Python's `splitlines` ends a line at either of the two characters.
TEXTS = [(name, f"{text}, quoted\x85and\u2028parted") for name, text in ROWS]
NAMED = [{"image": name, "caption": text, "split": ""} for name, text in TEXTS]
FORMATS = {
    "captions.csv": "image,caption,split\n" + "".join(f'{name},"{text}",\n' for name, text in TEXTS),
    "captions.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in NAMED),
    "metadata.jsonl": "".join(f'{{"file_name": "{name}", "text": "{text}", "label": 3}}\n' for name, text in TEXTS),
    "metadata.csv": "file_name,text\n" + "".join(f'{name},"{text}"\n' for name, text in TEXTS),
}


def test_a_split_may_have_a_part_of_a_product_and_no_other_split_the_rest(world: Make, tmp_path: Path) -> None:
    rows = [(f"{number}.png", f"Mug {number // 2}", f"sku{number // 2}") for number in range(6)]
    for held_out, kept in ((2, [2, 2, 2]), (1, [2, 1, 1])):
        counts = {"train": 2, "val": held_out, "test": held_out}
        splits = prepared(world(rows, "image\ttitle\tsku", text="title", item="sku", counts=counts), tmp_path)
        items = {split: {pair["item"] for pair in splits[split]} for split in SPLITS}
        assert [len(splits[split]) for split in SPLITS] == kept
        assert sorted(chain.from_iterable(items.values())) == ["sku0", "sku1", "sku2"]


NAMES = [f"{number}.png" for number in range(20)]
SHARED = Counts(train=10, val=2, test=2)


def _shared(seed: int, split: str = "", names: list[str] = NAMES) -> dict[str, list[str]]:
    """Split -> images in their order, of a listing that has all of them in the published `split`."""
    grouped = [[Pair(split, Sample(name=name, image_id=name), f"picture {name}")] for name in names]
    shared = share(Path("captions.tsv"), grouped, [], SHARED, seed)
    return {name: [image[0].image.name for image in images] for name, images in shared.items()}


def test_images_come_in_an_order_that_the_seed_gives() -> None:
    """The first captions that tasks ask about are a random sample, as PC-CLIP's 1,000 images are (section 4.1)."""
    for split in ("", "train"):
        found = [_shared(seed, split) for seed in range(5)]
        assert found == [_shared(seed, split) for seed in range(5)]
        for shared in found:
            in_file = [NAMES.index(name) for images in shared.values() for name in images]
            assert sorted(in_file) == list(range(20))
            train = [NAMES.index(name) for name in shared["train"]]
            assert train != sorted(train)
        assert len({tuple(shared["train"]) for shared in found}) == 5


@pytest.mark.parametrize("split", ["", "train"])
def test_one_image_more_moves_none_from_training_to_testing(split: str) -> None:
    for seed in range(20):
        before, after = _shared(seed, split, NAMES[1:]), _shared(seed, split)
        assert not set(after["test"]) & set(before["train"])
        assert len(set(after["test"]) & set(before["test"])) >= SHARED.test - 1
        assert len(set(before["train"]) - set(after["train"])) == 0
