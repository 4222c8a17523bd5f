"""A pair that a published test set holds does not train, however it is known: by name, by content, by text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.data.leak_guard import Guard, KnownSet
from components.data.leaks.keys import name_key, picture_key, text_key
from components.data.leaks.report import LeakCounts, TestSetKeys, read_counts
from components.data.source import Pair, Sample
from tests.unit.data.sources.reading import prepare_settings, prepared
from tests.unit.data.test_sets.writing import write_files

Png = Callable[..., bytes]
X, Y = Sample.of(b"x"), Sample.of(b"y")
TESTED = "COCO_val2014_000000000007.jpg"
"""A test image of Karpathy's, of which the user has a copy in another size."""
CLEAN = [(f"clean_{number}.png", f"a picture of thing {number}") for number in range(8)]
LEAKS = [(TESTED, "words of my own"), ("copy.png", "more words of my own"), ("mine.png", "A Dog, on the SOFA")]


@pytest.fixture
def project(tmp_path: Path, raw_params: dict[str, Any], png: Png) -> Callable[..., Settings]:
    """Writes COCO's and Spot-the-Difference's test sets, and a folder with eight clean pairs and `rows`."""
    pictures, names = tmp_path / "mine", (TESTED, "COCO_val2014_000000000008.jpg")
    texts = zip(names, ("A dog on the sofa.", "a cat"), strict=True)
    images = [{"filename": name, "split": "test", "sentences": [{"raw": text}]} for name, text in texts]
    copied = png((9, 9, 1), 32)
    published = {
        "coco/dataset_coco.json": {"images": images},
        f"coco/val2014/{names[0]}": png((9, 9, 0), 32),
        f"coco/val2014/{names[1]}": copied,
        "spot_the_difference/annotations/test.json": [{"img_id": "clean_0", "sentences": ["a car has gone"]}],
        "spot_the_difference/resized_images/clean_0.png": png((77, 7, 7)),
    }
    write_files(tmp_path / "benchmarks", published)

    def make(rows: list[tuple[str, str]], **settings: Any) -> Settings:
        lines = ["image\tcaption", *("\t".join(row) for row in [*CLEAN, *rows])]
        shown = {name: png((number, 50, 0)) for number, (name, _) in enumerate([*CLEAN, *rows])}
        write_files(pictures, shown | {"copy.png": copied, "captions.tsv": "\n".join(lines) + "\n"})
        counts = {"train": len(CLEAN) + len(rows) - 3, "val": 2, "test": 1}
        named = {"source": "folder", "folder": str(pictures), "heldout_testsets_dir": str(tmp_path / "benchmarks")}
        return prepare_settings(raw_params, **named | {"counts": counts} | settings)

    return make


def _prepared(settings: Settings, home: Path) -> tuple[dict[str, list[str]], LeakCounts]:
    """The stage's captions by split, and what it counted."""
    pairs = prepared(settings, home)
    counts = read_counts(home / "leaks")
    assert counts is not None
    return {split: [pair["caption"] for pair in rows] for split, rows in pairs.items()}, counts


def test_leaks_are_dropped_and_counted(project: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leaks = {text for _, text in LEAKS}
    for seed in range(40):
        settings = project(LEAKS)
        settings = settings.model_copy(update={"dataset": settings.dataset.model_copy(update={"seed": seed})})
        found, counts = _prepared(settings, tmp_path)
        if leaks.isdisjoint(found["test"]):
            break
    assert leaks.isdisjoint(found["train"] + found["val"])
    assert sum(map(len, found.values())) == len(CLEAN)
    assert counts.found == {"coco_retrieval": {"content": 1, "name": 1, "text": 1}}
    assert sum(counts.dropped.values()) == 3
    assert counts.checked == ["coco_retrieval", "spot_the_difference"]
    assert "coco_retrieval: 1 by content, 1 by name, 1 by text" in capsys.readouterr().out.splitlines()[-1]


def test_common_names_are_no_leaks_and_an_unread_test_set_is_reported(project: Any, tmp_path: Path) -> None:
    """`clean_0.png` is also what a test set calls one of its pictures."""
    found, counts = _prepared(project([]), tmp_path)
    assert sum(map(len, found.values())) == len(CLEAN)
    assert counts.found == counts.dropped == {}
    assert counts.summary.startswith("no pairs dropped")
    settings = project([])
    (tmp_path / "benchmarks/coco/dataset_coco.json").write_text("{")
    counts = _prepared(settings, tmp_path)[1]
    assert list(counts.unread) == ["coco_retrieval"]
    assert "dataset_coco.json is damaged" in counts.unread["coco_retrieval"]
    assert "not compared: coco_retrieval (" in counts.summary


def test_a_leak_can_be_refused_or_not_looked_for(project: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is in the test set coco_retrieval by (name|content|text): remove it, or"):
        _prepared(project(LEAKS, on_test_leak="refuse"), tmp_path)
    assert not (tmp_path / "pairs").exists()
    found, counts = _prepared(project(LEAKS, heldout_testsets_dir=None), tmp_path)
    assert sum(map(len, found.values())) == len(CLEAN) + len(LEAKS)
    assert "pairs were not compared with published test sets" in counts.summary
    assert counts.tags() == {"leaks": counts.summary}
    assert TestSetKeys.read(tmp_path / "leaks").texts == {}


def test_test_pairs_stay_one_pair_may_be_in_several_sets_and_a_split_must_keep_one() -> None:
    known = [KnownSet(name, pictures=frozenset({picture_key(b"x")})) for name in ("one", "other")]
    guard = Guard(Path("sets"), False, known)
    pairs = [Pair("test", X, "a"), Pair("train", X, "b"), Pair("train", Y, "c")]
    assert [pair.caption for pair in guard.clean(pairs)] == ["a", "c"]
    counts = guard.counts()
    assert counts.found == {"one": {"content": 1}, "other": {"content": 1}}
    assert counts.dropped == {"train": 1}
    tags = {"leaks.dropped.train": "1", "leaks.one.content": "1", "leaks.other.content": "1"}
    assert counts.tags() == tags | {"leaks": counts.summary}
    with pytest.raises(InputError, match="every pair of split val is in a published test set"):
        list(guard.clean([Pair("train", Y, "clean"), Pair("val", X, "a leak")]))


SAME = (
    ("coco/COCO_val2014_000000391895.jpg", "x/train2017/000000391895.jpg", "val2017/000000391895.JPG",
     "data/coco/000000391895.jpg", "mscoco_2014/images/000000391895.jpg"),
    ("pictures/1000268201_693b08cb0e.jpg", "flickr30k-images/1000268201.jpg", "flickr8k/images/1000268201.png"),
    ("VG_100K/2407890.jpg", "VG_100K_2/2407890.jpg", "visual_genome/2407890.jpg", "gqa/images/2407890.jpg"),
    ("cc3m_subset_images_extracted_final/000012345.jpg", "cc-neg/cc3m_subset_images/12345.jpg"),
    ("a/ILSVRC2012_val_00000001.JPEG", "b/ilsvrc2012_val_00000001.jpg"),
    # Samples of shards, and clip-retrieval's metadata of them, have no endings.
    ("00000.tar/COCO_val2014_000000391895", "COCO_val2014_000000391895", "0.tar/val2017/000000391895"),
    ("00000.tar/1000268201_693b08cb0e", "0.tar/flickr30k/1000268201", "1000268201_693b08cb0e.jpg"),
    ("0.tar/VG_100K/2407890", "VG_100K/2407890"),
)  # fmt: skip
AMBIGUOUS = (
    "pictures/0001.jpg", "images/000000391895.jpg", "shards/000012345.jpg", "images/2407890.jpg", "coco/1.jpg",
    "shop/1000268201.jpg", "val2017.jpg", "", "coco/391895.txt.d/a", "00000.tar/000012345",
    "flickr30k-00000.tar/000036979", "gqa/00000.tar/002407890", "coco-00000.tar/000000391895", "val2017/0.tar/12",
)  # fmt: skip


def test_names_and_texts_of_one_published_picture_have_one_key() -> None:
    keys = {names: {name_key(path) for path in names} for names in SAME}
    assert not [names for names, found in keys.items() if len(found) != 1 or None in found]
    assert not [path for path in AMBIGUOUS if name_key(path) is not None]
    owners = ("val2017/000002407890.jpg", "VG_100K/2407890.jpg", "flickr30k-images/2407890.jpg",
              "cc3m_subset_images/002407890.jpg")  # fmt: skip
    assert len({name_key(path) for path in owners}) == len(owners)
    assert text_key("A man -- rides\ta HORSE!") == text_key("a man rides a horse")
    assert text_key("a man rides a horse") != text_key("a man rides a house")
    assert text_key(" ... ") is None
