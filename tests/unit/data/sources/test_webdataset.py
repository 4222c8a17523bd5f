"""Source `webdataset`: samples as img2dataset writes them, and what is damaged or hostile left out and listed."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from components.core.settings import Settings
from components.core.tables.records import UNUSABLE
from components.data.source import Unusable
from tests.support.shard_making import make_shards, picture, sound, write_tar
from tests.unit.data.sources import reading
from tests.unit.data.sources.reading import assert_refused, prepare_settings

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


def test_without_splits_samples_are_drawn_from_all_shards(settings: Any, prepared: Any, tmp_path: Path) -> None:
    make_shards(tmp_path / "shards", 3, 4)
    found = prepared(settings())
    assert found == prepared(settings(folder=None, shards=str(tmp_path / "shards")))
    held_out = found["test"] + found["val"]
    assert found["train"] == [one for one in map("caption {}".format, range(12)) if one not in held_out]
    assert sorted(held_out) != [f"caption {number}" for number in range(4)]
    assert len(set(held_out)) == 4
    assert [query["text"] for query in reading.caption_queries(tmp_path)] == found["test"]


def test_the_name_of_the_data_sets_folder_is_not_a_split(settings: Any, prepared: Any, tmp_path: Path) -> None:
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


def test_a_repeated_pair_is_left_out(
    settings: Any, prepared: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_unusable_samples_are_left_out_and_listed(settings: Any, tmp_path: Path) -> None:
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


def test_a_dot_in_a_key_is_named(settings: Any, tmp_path: Path) -> None:
    dotted: Members = [("mug.v2.front.jpg", picture(0, "JPEG")), ("mug.txt", b"a mug")]
    samples = [member for number in range(12) for member in sound(f"{number:03d}", number)]
    write_tar(tmp_path / "shards" / "000.tar", [*samples, *dotted])
    unusable: list[Unusable] = []
    reading.pairs_of(settings(max_unusable_share=0.1), unusable)
    hint = "no image: the key of 'mug.v2.front.jpg' ends at its first dot, as in webdataset: rename it"
    assert [lost.reason for lost in unusable] == [f"000.tar/mug cannot be used ({hint})"]


def test_a_cut_shard_gives_what_is_before_the_cut_and_counts_by_its_size(
    settings: Any, prepared: Any, tmp_path: Path
) -> None:
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
