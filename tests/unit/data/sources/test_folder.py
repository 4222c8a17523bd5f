"""Pairs from a folder: what is wrong with the user's files is said with file and line."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.compute.provenance import path_hash
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import CAPTION_QUERIES, PAIRS, PARAPHRASE_QUERIES, SPLITS, UNUSABLE
from components.data import prepare
from components.data.source import Pair, Source
from components.data.sources import find_source
from tests.support.tracked_runs import find_runs

Rows = list[tuple[str, ...]]
ROWS: Rows = [(f"{number}.png", f"picture number {number}") for number in range(6)]


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any], png: Any) -> Callable[..., Settings]:
    """Writes a folder of six images and the given rows; returns settings that name it."""

    def make(rows: Rows = ROWS, header: str = "image\tcaption", **prepare_settings: Any) -> Settings:
        folder = tmp_path / "pictures"
        folder.mkdir(exist_ok=True)
        for number in range(6):
            (folder / f"{number}.png").write_bytes(png((number, 0, 0)))
        lines = [header, *("\t".join(row) for row in rows)]
        (folder / "captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        counts = {"train": 4, "val": 1, "test": 1}
        raw_params["prepare"] |= {"source": "folder", "folder": str(folder), "counts": counts} | prepare_settings
        return Settings.model_validate(raw_params)

    return make


def _pairs(settings: Settings) -> list[Any]:
    return list(find_source("folder").usable(settings, []))


def test_good_folder(world: Any) -> None:
    settings = world()
    pairs = _pairs(settings)
    assert sorted(pair.caption for pair in pairs) == sorted(caption for _, caption in ROWS)
    assert [pair.split for pair in pairs] == ["test", "val", *["train"] * 4]
    assert pairs == _pairs(settings)
    assert all(pair.facts is None for pair in pairs)


def test_prepare_writes_the_splits(world: Any, tmp_path: Path, track_in: Callable[[Path], None]) -> None:
    track_in(tmp_path)
    settings = world()
    prepare.run_tracked(settings)
    rows = {split: PAIRS.read(Path(f"data/pairs/{split}.parquet")).num_rows for split in SPLITS}
    assert rows == {"train": 4, "val": 1, "test": 1}
    [tracked] = find_runs(settings.dataset.name, "prepare")
    assert rows.items() <= tracked.data.metrics.items()
    assert tracked.data.tags["output.pairs.sha256"] == path_hash(Path("data/pairs"))


def test_no_image_is_in_two_splits_and_all_captions_of_a_test_image_are_queries(world: Any, tmp_path: Path) -> None:
    rows = [(name, f"{text} {take}") for take in range(3) for name, text in ROWS]
    counts = {"train": 6, "val": 2, "test": 2}
    settings = world(rows, counts=counts)
    prepare.run(settings, tmp_path / "pairs", tmp_path / "evaluation")
    splits = {split: PAIRS.read(tmp_path / "pairs" / f"{split}.parquet").to_pylist() for split in SPLITS}
    assert {split: len(pairs) for split, pairs in splits.items()} == counts
    images = {split: {pair["image_id"] for pair in pairs} for split, pairs in splits.items()}
    assert [len(images[split]) for split in SPLITS] == [2, 2, 2]
    assert len(set.union(*images.values())) == 6
    queries = CAPTION_QUERIES.read(tmp_path / "evaluation" / "caption_queries.parquet").to_pylist()
    assert len(queries) == 6
    captions = {pair["image_id"]: pair["caption"] for pair in splits["test"]}
    assert {query["image_id"] for query in queries} == set(captions)
    for query in queries:
        assert query["text"].rpartition(" ")[0] == captions[query["image_id"]].rpartition(" ")[0]
    assert not (tmp_path / "evaluation" / "paraphrase_queries.parquet").exists()


def test_written_paraphrases_of_test_images_become_queries(world: Any, tmp_path: Path) -> None:
    rows = [(name, text, f"photo of {text}" if number % 2 else "") for number, (name, text) in enumerate(ROWS)]
    settings = world(rows, "image\tcaption\tparaphrase", counts={"train": 1, "val": 1, "test": 4})
    prepare.run(settings, tmp_path / "pairs", tmp_path / "evaluation")
    found = PARAPHRASE_QUERIES.read(tmp_path / "evaluation" / "paraphrase_queries.parquet").to_pylist()
    tested = PAIRS.read(tmp_path / "pairs" / "test.parquet").to_pylist()
    expected = {(pair["image_id"], pair["caption"]) for pair in tested if int(pair["caption"][-1]) % 2}
    assert {(row["image_id"], row["query"]) for row in found} == expected
    assert {row["paraphrase"] for row in found} == {f"photo of {caption}" for _, caption in expected}


def test_bad_rows(world: Any, tmp_path: Path, png: Any) -> None:
    (tmp_path / "secret.png").write_bytes(png((9, 9, 9)))
    for row, message in (
        (("3.png", "   "), r"line 5 \(3\.png\) has an empty caption"),
        (("3.png", "\u200b \u2060"), r"line 5 \(3\.png\) has an empty caption"),
        (("3.png", "word " * 500), r"line 5 \(3\.png\) has a caption of 500 words"),
        (("3.png", "x" * 2001), r"line 5 \(3\.png\) has a caption of 2001 letters, at most 2000 are allowed"),
        (("gone.png", "a picture"), r"line 5 names gone\.png"),
        (("", "a picture"), r"line 5 names "),
        (("../secret.png", "a picture"), r"line 5 names .*secret\.png"),
        ((str(tmp_path / "secret.png"), "a picture"), r"line 5 names .*secret\.png"),
        (("1.png", "x" * 140_000), r"line 5 cannot be read \(.*\): shorten or remove it"),
        # A tab within a caption would truncate it.
        (("1.png",), r"line 5 has 1 fields, the first line 2: write"),
        (("1.png", "a picture", "of a tab"), r"line 5 has 3 fields, the first line 2: write"),
    ):
        with pytest.raises(InputError, match=rf"captions\.tsv: {message}"):
            _pairs(world([*ROWS[:3], row, *ROWS[4:]]))
    rows = [(*row, "") for row in ROWS]
    for bad in (("1.png", "a picture", "of a tab", "more"), ("1.png", "a picture")):
        with pytest.raises(InputError, match=rf"line 3 has {len(bad)} fields, the first line 3: write"):
            _pairs(world([rows[0], bad, *rows[2:]], "image\tcaption\tparaphrase"))


def test_link_out_of_the_folder(world: Any, tmp_path: Path, png: Any) -> None:
    settings = world()
    (tmp_path / "secret.png").write_bytes(png((9, 9, 9)))
    link = tmp_path / "pictures" / "3.png"
    link.unlink()
    link.symlink_to(tmp_path / "secret.png")
    with pytest.raises(InputError, match=r"line 5 names 3\.png, which is a link to a file outside .*pictures: copy"):
        _pairs(settings)
    link.unlink()
    with pytest.raises(InputError, match=r"line 5 names 3\.png, which is not in .*pictures: add or remove it"):
        _pairs(settings)


def test_a_name_that_is_spelled_otherwise_is_the_same_picture(world: Any, tmp_path: Path) -> None:
    settings = world()
    table = tmp_path / "pictures" / "captions.tsv"
    before = _pairs(settings)
    table.write_text(table.read_text().replace("3.png", "./3.png"))
    assert [pair.id for pair in _pairs(settings)] == [pair.id for pair in before]
    table.rename(tmp_path / "captions.tsv")
    whole = settings.model_copy(update={"prepare": settings.prepare.model_copy(update={"folder": tmp_path})})
    text = (tmp_path / "captions.tsv").read_text()
    for number in range(6):
        text = text.replace(f"{number}.png", f"pictures/{number}.png")
    (tmp_path / "captions.tsv").write_text(text.replace("./pictures", "pictures"))
    assert [pair.id for pair in _pairs(whole)] == [pair.id for pair in before]


def test_too_few_rows(world: Any) -> None:
    with pytest.raises(
        InputError,
        match=r"\.tsv has 5 lines of 5 images; .* 1 test images, 1 validation images and 4 lines of the other images",
    ):
        _pairs(world(ROWS[:5]))


def test_wrong_headers(world: Any) -> None:
    rows = [(*row, "x", "y") for row in ROWS]
    for header, message in (
        ("file\ttext\ta\tb", "must name the columns image and caption"),
        ("image\tcaption\tcaption\tnote", "names the column caption twice"),
        ("image\tcaption\timage\tnote", "names the column image twice"),
        ("image\tcaption\tparaphrase\tparaphrase", "names the column paraphrase twice"),
    ):
        with pytest.raises(InputError, match=rf"captions\.tsv: the first line {message}"):
            _pairs(world(rows, header))


def test_columns_of_the_users_own_are_left_alone(world: Any) -> None:
    pairs = _pairs(world([("note", caption, name) for name, caption in ROWS], "mine\tcaption\timage"))
    assert sorted(pair.caption for pair in pairs) == sorted(caption for _, caption in ROWS)


def test_missing_and_damaged_files(world: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"image folder .*nowhere does not exist"):
        _pairs(world(folder=str(tmp_path / "nowhere")))
    with pytest.raises(InputError, match=r"needs prepare\.folder"):
        _pairs(world(folder=None))
    settings, folder = world(folder=str(tmp_path / "pictures")), tmp_path / "pictures"
    (folder / "captions.csv").write_text("image,caption\n")
    with pytest.raises(InputError, match=r"has captions\.tsv and captions\.csv: keep the one"):
        _pairs(settings)
    (folder / "captions.csv").unlink()
    (folder / "captions.tsv").unlink()
    with pytest.raises(InputError, match=r"captions\.tsv is missing"):
        _pairs(settings)
    for name, content, message in (
        ("captions.tsv", "image\tcaption\n0.png\tcafé\n".encode("latin-1"), "is not UTF-8"),
        ("captions.parquet", b"PAR1 and nothing else", "is damaged"),
        ("captions.csv", b"image,caption\n0.png,one, two\n", "line 2 has 3 fields, the first line 2: quote captions"),
        ("captions.jsonl", b'{"image": "0.png", "caption": "a"}\n{"image":', "line 2 is not JSON"),
        ("captions.jsonl", b"[1]\n", "line 1 is not a JSON object"),
        ("captions.jsonl", b'{"image": "0.png"}\n', "it must have the columns image and caption"),
        ("captions.jsonl", b'{"image": "0.png", "caption": 3}\n', "line 1 has no text as caption"),
        ("captions.jsonl", b'{"image": "0.png", "caption": "a", "split": "most"}\n', "line 1 has split 'most'"),
    ):
        (folder / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name}.* {message}"):
            _pairs(settings)
        (folder / name).unlink()


def test_table_from_a_spreadsheet(world: Any, tmp_path: Path) -> None:
    """It begins with a byte order mark, and quotes in a quoted text are doubled."""
    settings = world([("0.png", '"He said ""hi"", ok"'), ("1.png", '"Stop" on a sign'), *ROWS[2:]])
    table = tmp_path / "pictures" / "captions.tsv"
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes().replace(b"\n", b"\r\n"))
    read = ['He said "hi", ok', '"Stop" on a sign', *(caption for _, caption in ROWS[2:])]
    assert sorted(pair.caption for pair in _pairs(settings)) == sorted(read)


def test_unknown_source() -> None:
    with pytest.raises(InputError, match=r"prepare\.source 'web' is unknown: choose one of cc_neg, coco, embeddings"):
        find_source("web")


def _copied(tmp_path: Path, name: str, *copies: str) -> None:
    for copy in copies:
        shutil.copy(tmp_path / "pictures" / name, tmp_path / "pictures" / copy)


@pytest.mark.parametrize("seed", range(3))
def test_one_picture_under_three_names_is_in_one_split(world: Any, tmp_path: Path, seed: int) -> None:
    settings = world([*ROWS, ("./0.png", "the first again"), ("copy.png", "a copy of the first")])
    settings = settings.model_copy(update={"dataset": settings.dataset.model_copy(update={"seed": seed})})
    _copied(tmp_path, "0.png", "copy.png")
    prepare.run(settings, tmp_path / "pairs", tmp_path / "evaluation")
    splits = {split: PAIRS.read(tmp_path / "pairs" / f"{split}.parquet").to_pylist() for split in SPLITS}
    first = hashlib.sha256((tmp_path / "pictures" / "0.png").read_bytes()).hexdigest()[:16]
    assert [[pair["image_id"] for pair in pairs].count(first) > 0 for pairs in splits.values()].count(True) <= 1
    for pairs in splits.values():
        for pair in pairs:
            assert hashlib.sha256(Path(pair["file"]).read_bytes()).hexdigest()[:16] == pair["image_id"]
    images = [{pair["image_id"] for pair in pairs} for pairs in splits.values()]
    assert sum(map(len, images)) == len(set.union(*images))
    queries = CAPTION_QUERIES.read(tmp_path / "evaluation" / "caption_queries.parquet").to_pylist()
    told = {query["text"] for query in queries if query["image_id"] == first}
    assert told in (set(), {"picture number 0", "the first again", "a copy of the first"})


def test_a_line_that_repeats_image_and_caption_is_left_out_and_counted(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = world([*ROWS, *ROWS, ("copy.png", ROWS[3][1])])
    _copied(tmp_path, "3.png", "copy.png")
    prepare.run(settings, tmp_path / "pairs", tmp_path / "evaluation")
    splits = [PAIRS.read(tmp_path / "pairs" / f"{split}.parquet").to_pylist() for split in SPLITS]
    assert [len(pairs) for pairs in splits] == [4, 1, 1]
    assert sorted(pair["caption"] for pairs in splits for pair in pairs) == sorted(text for _, text in ROWS)
    assert CAPTION_QUERIES.count(tmp_path / "evaluation" / "caption_queries.parquet") == 1
    assert "captions.tsv: 7 lines left out that repeat the image and the caption of another" in capsys.readouterr().out


def test_an_image_in_two_splits_stays_in_the_first_and_is_listed(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a source gives: the captions may differ, and the names."""
    told = [("test", "one.png", "a dog"), ("train", "copy.png", "one hound"), ("val", "copy.png", "a dog")]
    pairs = [Pair(split, b"picture", caption, name=name) for split, name, caption in told]
    source = Source(pairs=lambda _settings: iter([*pairs, Pair("train", b"other", "a cat")]))
    monkeypatch.setattr(prepare, "find_source", lambda _name: source)
    prepare.run(world(), tmp_path / "pairs", tmp_path / "evaluation")
    found = {split: PAIRS.read(tmp_path / "pairs" / f"{split}.parquet")["caption"].to_pylist() for split in SPLITS}
    assert found == {"train": ["a cat"], "val": [], "test": ["a dog"]}
    reasons = UNUSABLE.read(tmp_path / "pairs" / "unusable.parquet")["reason"].to_pylist()
    assert reasons == [f"image copy.png of split {split} is also in split test" for split in ("train", "val")]


def _jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# Python's `splitlines` ends a line at either of the two characters.
TEXTS = [(name, f"{text}, quoted\x85and\u2028parted") for name, text in ROWS]
NAMED = [{"image": name, "caption": text, "split": ""} for name, text in TEXTS]
FORMATS: dict[str, Callable[[Path], object]] = {
    "captions.csv": lambda path: path.write_text(
        "image,caption,split\n" + "".join(f'{row["image"]},"{row["caption"]}",\n' for row in NAMED)
    ),
    "captions.jsonl": lambda path: path.write_text(_jsonl(NAMED)),
    "captions.parquet": lambda path: pq.write_table(pa.Table.from_pylist(NAMED), path),
    "metadata.jsonl": lambda path: path.write_text(
        _jsonl([{"file_name": row["image"], "text": row["caption"], "label": 3} for row in NAMED])
    ),
    "metadata.csv": lambda path: path.write_text(
        "file_name,text\n" + "".join(f'{row["image"]},"{row["caption"]}"\n' for row in NAMED)
    ),
}


def test_every_format_gives_the_same_pairs(world: Any, tmp_path: Path) -> None:
    settings = world(TEXTS)
    expected = _pairs(settings)
    (tmp_path / "pictures" / "captions.tsv").unlink()
    for name, write in FORMATS.items():
        write(tmp_path / "pictures" / name)
        assert _pairs(settings) == expected, name
        (tmp_path / "pictures" / name).unlink()


def test_a_split_column_is_kept(world: Any) -> None:
    splits = ["train", "test", "train", "dev", "train", "train"]
    rows = [(*row, split) for row, split in zip(ROWS, splits, strict=True)]
    pairs = _pairs(world(rows, "image\tcaption\tsplit"))
    assert [(pair.split, pair.caption) for pair in pairs[:2]] == [("test", ROWS[1][1]), ("val", ROWS[3][1])]
    assert {pair.split for pair in pairs[2:]} == {"train"}
