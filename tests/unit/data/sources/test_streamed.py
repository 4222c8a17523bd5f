"""Sources `webdataset` and `embeddings`: layouts as others write them, and damaged files named or left out."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from components.core.pictures.embedding_files import read_embeddings
from components.core.settings import Settings
from components.core.tables.records import SPLITS, UNUSABLE
from components.data.source import Unusable
from components.data.sources import embeddings, find_source
from tests.support.shard_making import make_shards, picture, sound, write_tar
from tests.unit.data.sources import reading
from tests.unit.data.sources.reading import Damage, assert_refused, holding, pairs_of, prepare_settings, without

COUNTS = {"train": 8, "val": 2, "test": 2}
Members = list[tuple[str | tarfile.TarInfo, bytes]]


@pytest.fixture
def settings(tmp_path: Path, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    named = {"source": "webdataset", "folder": str(tmp_path / "shards"), "counts": COUNTS}
    return lambda **changes: prepare_settings(raw_params, **named | changes)


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[[Settings], dict[str, list[str]]]:
    """Runs the stage; returns the captions by split."""
    return lambda settings: {
        split: [row["caption"] for row in rows] for split, rows in reading.prepared(settings, tmp_path).items()
    }


def test_shards_are_drawn_from_whatever_the_name_of_their_folder(settings: Any, prepared: Any, tmp_path: Path) -> None:
    make_shards(tmp_path / "shards", 3, 4)
    found = prepared(settings())
    assert found == prepared(settings(folder=None, shards=str(tmp_path / "shards")))
    held_out = found["test"] + found["val"]
    assert found["train"] == [one for one in map("caption {}".format, range(12)) if one not in held_out]
    assert sorted(held_out) != [f"caption {number}" for number in range(4)]
    assert len(set(held_out)) == 4
    assert [query["text"] for query in reading.caption_queries(tmp_path)] == found["test"]
    pattern = make_shards(tmp_path / "laion-test", 3, 4)
    found = prepared(settings(folder=str(tmp_path / "laion-test")))
    assert found == prepared(settings(shards=pattern))
    assert {split: len(captions) for split, captions in found.items()} == COUNTS


def test_a_pattern_names_shards_and_folders_name_splits(settings: Any, prepared: Any, tmp_path: Path) -> None:
    for number, split in enumerate(("train", "test", "validation")):
        samples = [member for sample in range(8) for member in sound(f"{sample}", 10 * number + sample)]
        write_tar(tmp_path / "shards" / split / "00000.tar", samples)
    found = prepared(settings())
    assert found["test"] == ["caption 10", "caption 11"]
    assert found["val"] == ["caption 20", "caption 21"]
    assert found["train"] == [f"caption {number}" for number in range(8)]
    alone = settings(shards=f"{tmp_path}/shards/{{train,test}}/00000.tar", counts=COUNTS | {"train": 6})
    assert set(prepared(alone)["val"]) < {f"caption {number}" for number in range(8)}


def test_repeats_are_left_out(settings: Any, prepared: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "shards" / "test" / "0.tar", [one for key in (0, 1) for one in sound(f"{key:02d}", key)])
    write_tar(tmp_path / "shards" / "val" / "0.tar", [one for key in (2, 3) for one in sound(f"{key:02d}", key)])
    trained = [one for key, number in enumerate([*range(4, 10), 4, 5, 10, 11]) for one in sound(f"{key:02d}", number)]
    write_tar(tmp_path / "shards" / "0.tar", trained)
    assert prepared(settings())["train"] == [f"caption {number}" for number in range(4, 12)]
    assert "2 captions left out that repeat another of the same image" in capsys.readouterr().out


def _link(key: str) -> Members:
    link = tarfile.TarInfo(f"{key}.png")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return [(link, b""), (f"{key}.txt", b"a link out of the shard")]


def _bomb() -> bytes:
    Image.new("1", (20_000, 20_000)).save(buffer := io.BytesIO(), "PNG")
    return buffer.getvalue()


def _sample(ending: str, text: bytes, shown: bytes = picture(99)) -> Callable[[str], Members]:
    """A picture, and a text in another member."""
    return lambda key: [(f"{key}.png", shown), (f"{key}.{ending}", text)]


FAULTS: dict[str, tuple[Callable[[str], Members], str]] = {
    "no image": (lambda key: [(f"{key}.txt", b"only a text")], "no image"),
    "no caption": (lambda key: [(f"{key}.png", picture(99))], "empty caption"),
    "empty caption": (_sample("txt", b" \n"), "empty caption"),
    "caption of another kind": (_sample("json", b'{"caption": 3}'), "empty caption"),
    "wrong encoding": (_sample("txt", "ä".encode("latin-1")), "unreadable text"),
    "cut JSON": (_sample("json", b'{"cap'), "unreadable text"),
    "deep JSON": (_sample("json", b"[" * 100_000), "unreadable text"),
    "long caption": (_sample("txt", b"word " * 101), "of 101 words"),
    "cut image": (_sample("txt", b"half", picture(99)[:40]), "not a readable image"),
    "same name twice": (lambda key: [*sound(key, 98), *sound(key, 99)], "duplicate member"),
    "name that climbs": (lambda key: sound(f"../{key}", 99), "unsafe name"),
    "link": (_link, "not a file"),
    "bomb": (_sample("txt", b"a bomb", _bomb()), "not a readable image"),
}


def test_unusable_samples_are_listed_and_a_dot_in_a_key_is_named(settings: Any, tmp_path: Path) -> None:
    for name, (write, reason) in FAULTS.items():
        samples = [member for number in range(12) for member in sound(f"{number:03d}", number)]
        write_tar(tmp_path / "shards" / "000.tar", [*samples[:10], *write("004x"), *samples[10:]])
        unusable: list[Unusable] = []
        pairs = reading.pairs_of(settings(max_unusable_share=0.1), unusable)
        assert Counter(pair.split for pair in pairs) == COUNTS, name
        (lost,) = unusable
        assert reason in lost.reason, name
        assert "000.tar/" in lost.reason
    assert_refused(settings(), r"1 of at most 12 images cannot be used, .*max_u.* is 0\.01")
    dotted: Members = [("mug.v2.front.jpg", picture(0, "JPEG")), ("mug.txt", b"a mug")]
    samples = [member for number in range(12) for member in sound(f"{number:03d}", number)]
    write_tar(tmp_path / "shards" / "000.tar", [*samples, *dotted])
    unusable: list[Unusable] = []
    reading.pairs_of(settings(max_unusable_share=0.1), unusable)
    hint = "no image: the key of 'mug.v2.front.jpg' ends at its first dot, as in webdataset: rename it"
    assert [lost.reason for lost in unusable] == [f"000.tar/mug cannot be used ({hint})"]


def test_a_cut_shard_gives_what_is_before_and_counts_by_its_size(settings: Any, prepared: Any, tmp_path: Path) -> None:
    make_shards(tmp_path / "shards", 2, 12)
    sizes = (tmp_path / "shards" / "sizes.json").rename(tmp_path / "sizes.json")
    first = tmp_path / "shards" / "000.tar"
    first.write_bytes(first.read_bytes()[: 1024 * 2 * 9 + 100])
    # A shard of unknown size counts as one of the usual size.
    assert_refused(settings(max_unusable_share=0.4), r"broken shard.*9992 of at most 12 images cannot be used")
    # Kept checks do not outlive a size that is known since.
    sizes.rename(tmp_path / "shards" / "sizes.json")
    found = prepared(settings(max_unusable_share=0.4))
    assert len(found["train"]) == COUNTS["train"]
    whole = {f"caption {number}" for number in (*range(8), *range(12, 24))}
    assert {text for texts in found.values() for text in texts} < whole
    (reason,) = UNUSABLE.read(tmp_path / "pairs" / "unusable.parquet")["reason"].to_pylist()
    assert "broken shard" in reason


def test_wrong_settings_are_refused(settings: Any, tmp_path: Path) -> None:
    make_shards(tmp_path / "shards", 3, 4)
    for changes, reason in (
        ({"shards": "nowhere/{000..003}.tar"}, r"nowhere/000\.tar is missing"),
        ({"shards": "pipe:cat 0.tar"}, "commands are not run"),
        ({"counts": COUNTS | {"train": 9}}, r"has 8 training captions, prepare\.counts\.train is 9"),
        ({"counts": COUNTS | {"test": 13}}, r"has 12 images for test, prepare\.counts\.test is 13"),
    ):
        assert_refused(settings(**changes), reason)


ROWS, DIM = 12, 4
EMBEDDED = {"train": 20, "val": 2, "test": 2}


def vectors(number: int) -> Any:
    return np.random.default_rng(number).normal(size=(ROWS, DIM)).astype(np.float32)


def captioned(number: int) -> dict[str, Any]:
    captions = [f"caption {number * ROWS + row}" for row in range(ROWS)]
    return {"image_path": [f"a/{row}.jpg" for row in range(ROWS)], "caption": captions}


def write_pairs(folder: Path, arrays: str, tables: str, numbers: tuple[int, int]) -> None:
    """Two files of embeddings and their captions; the second may have a two-digit number."""
    for place, number in enumerate(numbers):
        for path in (array := folder / arrays.format(number), table := folder / tables.format(number)):
            path.parent.mkdir(parents=True, exist_ok=True)
        np.save(array, vectors(place))
        pq.write_table(pa.table(captioned(place)), table)


def write_columns(folder: Path) -> None:
    folder.mkdir()
    for place in range(2):
        table = pa.table(captioned(place) | {"embedding": list(vectors(place))})
        pq.write_table(table, folder / f"{place}.parquet", row_group_size=5)


WRITERS: dict[str, Damage] = {
    "clip-retrieval": lambda to: write_pairs(to, "img_emb/img_emb_{}.npy", "metadata/metadata_{}.parquet", (9, 10)),
    "beside": lambda to: write_pairs(to, "part-{}.npy", "part-{}.parquet", (0, 1)),
    "columns": write_columns,
}


@pytest.fixture
def embedded(tmp_path: Path, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    def make(writer: str = "clip-retrieval", **changes: Any) -> Settings:
        WRITERS[writer](tmp_path / "set")
        named = {"source": "embeddings", "folder": str(tmp_path / "set"), "counts": EMBEDDED}
        return reading.prepare_settings(raw_params, **named | changes)

    return make


@pytest.mark.parametrize("writer", WRITERS)
def test_pairs_refer_to_their_rows_in_order(writer: str, embedded: Any, tmp_path: Path) -> None:
    pairs = reading.prepared(embedded(writer), tmp_path)
    assert {split: len(rows) for split, rows in pairs.items()} == EMBEDDED
    everything = np.concatenate([vectors(0), vectors(1)])
    for row in (row for rows in pairs.values() for row in rows):
        assert (row["image"], row["size"]) == (None, None)
        found = read_embeddings(Path(row["file"]), row["position"], 1)[0]
        np.testing.assert_array_equal(found, everything[int(row["caption"].removeprefix("caption "))])
    assert [query["text"] for query in reading.caption_queries(tmp_path)] == [pair["caption"] for pair in pairs["test"]]
    assert find_source("embeddings").found_in(tmp_path / "set") is not None


def test_names_are_splits_parts_are_cut(embedded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = embedded("beside", counts={"train": 10, "val": 2, "test": 4})
    for ending in ("npy", "parquet"):
        (tmp_path / "set" / f"part-1.{ending}").rename(tmp_path / "set" / f"test-1.{ending}")
    tests = [pair.caption for pair in pairs_of(made) if pair.split == "test"]
    assert tests == [f"caption {12 + row}" for row in range(4)]
    shutil.rmtree(tmp_path / "set")
    monkeypatch.setattr(embeddings, "_CHUNK", 5)
    captions = [pair.caption for pair in pairs_of(embedded("columns"))]
    assert sorted(captions) == sorted(f"caption {number}" for number in range(24))
    trained = [int(caption.removeprefix("caption ")) for caption in captions[4:]]
    assert trained == sorted(trained)


def test_one_image_more_moves_none_from_training_to_testing(embedded: Any, tmp_path: Path) -> None:
    def splits() -> dict[str, set[str]]:
        pairs = pairs_of(made)
        return {split: {pair.image_id for pair in pairs if pair.split == split} for split in SPLITS}

    made = embedded("beside")
    for number in range(20):
        before = splits()
        np.save(tmp_path / "set" / f"{number}.npy", vectors(number + 2)[:1])
        pq.write_table(pa.table(captioned(number)).slice(0, 1), tmp_path / "set" / f"{number}.parquet")
        after = splits()
        assert not after["test"] & before["train"]
        assert len(after["test"] & before["test"]) >= EMBEDDED["test"] - 1


def test_rows_that_are_zero_or_not_finite_or_have_no_caption_are_listed(embedded: Any, tmp_path: Path) -> None:
    made = embedded(counts=EMBEDDED | {"train": 17}, max_unusable_share=0.5)
    broken = vectors(0)
    broken[3, 1], broken[4] = np.nan, 0
    np.save(tmp_path / "set/img_emb/img_emb_9.npy", broken)
    rows = captioned(0)
    rows["caption"][5] = None
    pq.write_table(pa.table(rows), tmp_path / "set/metadata/metadata_9.parquet")
    reading.prepared(made, tmp_path)
    reasons = UNUSABLE.read(tmp_path / "pairs" / "unusable.parquet")["reason"].to_pylist()
    faults = ("row 4 is zero or not finite", "row 5 is zero or not finite", "row 6 has an empty caption")
    assert all(fault in reason for fault, reason in zip(faults, reasons, strict=True))


ARRAY, TABLE = "img_emb/img_emb_9.npy", "metadata/metadata_10.parquet"


def array(values: Any) -> Damage:
    """Gives the first file other embeddings."""
    return lambda folder: np.save(folder / ARRAY, values, allow_pickle=True)


def table(name: str, **columns: Any) -> Damage:
    """Gives a Parquet file other columns."""
    return lambda folder: pq.write_table(pa.table(columns), folder / name)


@pytest.mark.parametrize(
    ("writer", "damage", "message"),
    [
        ("clip-retrieval", holding(ARRAY, b"\x93NUMPY"), r"img_emb_9\.npy is damaged"),
        ("clip-retrieval", array(np.array([{}] * ROWS)), r"img_emb_9\.npy (is damaged|holds object)"),
        ("clip-retrieval", array(np.ones((ROWS, DIM), np.int64)), r"int64 of shape \(12, 4\), which are not rows"),
        ("clip-retrieval", array(vectors(0)[1:]), r"img_emb_9\.npy has 11 rows, .*metadata_9\.parquet has 12"),
        ("clip-retrieval", without(TABLE), r"metadata_10\.parquet is missing: put"),
        ("clip-retrieval", holding(TABLE, b"PAR1"), r"metadata_10\.parquet is damaged"),
        ("beside", table("part-0.parquet", label=[1] * ROWS), r"has the columns label and none for 'caption'"),
        ("columns", table("0.parquet", **captioned(0), embedding=[[1.0]] * 11 + [[1.0, 2.0]]),
         r"0\.parquet has rows of different width"),
        ("beside", lambda folder: [path.unlink() for path in folder.iterdir()], "no embeddings to train on"),
    ],
)  # fmt: skip
def test_unfit_files_are_named(writer: str, damage: Damage, message: str, embedded: Any, tmp_path: Path) -> None:
    made = embedded(writer)
    damage(tmp_path / "set")
    assert_refused(made, message)
