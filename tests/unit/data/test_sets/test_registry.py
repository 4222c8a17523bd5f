"""Test sets are complete: they hold all that benchmarks show an encoder, read by their own readers."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.compute.metrics import Features
from components.core.system.errors import InputError
from components.data.leaks.keys import text_key
from components.data.test_sets.files import LazyPicture, TestSetFiles
from components.data.test_sets.readers import all_test_sets, cc_neg, load_test_sets
from components.data.test_sets.readers.negbench import CAPTIONS, PICTURES, QUESTIONS
from components.data.test_sets.readers.sts import SICK, STS_B
from components.data.test_sets.readers.sugar_crepe import SUBSETS, TYPES
from components.evaluation.benchmarks.published import published_benchmarks, published_families
from components.evaluation.scoring.published_context import NO_CHANGES, PublishedContext
from research.image_sets.image_set import image_sets
from tests.support.toy_context import toy_context
from tests.unit.data.test_sets.writing import write_files

NO_TEST_SET = {
    "caption_differences": "the user's own texts",
    "caption_quality": "the user's own texts",
    "comparison_distance": "authors' texts about no test picture",
    "difference_cifar100_size": "the test split of zero_shot_cifar100",
    "text_to_image": "class names",
    "text_to_image_clip_score": "class names",
}


@dataclass
class _Watched(PublishedContext):
    """A context that notes the texts and pictures that it shows."""

    shown: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)

    def texts(self, texts: Sequence[str]) -> Features:
        self.shown += texts
        return super().texts(texts)

    def images(self, pictures: Sequence[LazyPicture], changes: Mapping[str, Any] = NO_CHANGES) -> Features:
        self.pictures += [picture.name.partition("[")[0] for picture in pictures]
        return super().images(pictures, changes)


def _parquet(**columns: list[str]) -> bytes:
    pq.write_table(pa.table(columns), buffer := io.BytesIO())
    return buffer.getvalue()


def _triplet(subset: str, *columns: str) -> dict[str, str]:
    return {"filename": "000000000001.jpg", **{column: f"{subset} {column}" for column in columns}}


RED = (255, 0, 0)
KARPATHY = [
    {"filename": f"COCO_val2014_00000000000{number}.jpg", "split": split, "sentences": [{"raw": f"{split} {number}"}]}
    for number, split in ((1, "test"), (2, "test"), (3, "restval"))
]
RELATION = {
    "bbox_x": 0, "bbox_y": 0, "bbox_w": 8, "bbox_h": 8, "image_path": "7.jpg", "relation_name": "eating",
    "true_caption": "the horse eats", "false_caption": "the grass eats",
}  # fmt: skip
CC_NEG = {
    cc_neg.TABLE: _parquet(
        image_path=[f"00000000{number}.jpg" for number in range(3)],
        caption=["a", "b", "c"],
        negated=["no, a", "no b", "no c"],
    ),
    cc_neg.CSV: "image_number,caption,negation,paraphrased\n"
    + "".join(f"{number},text {number},no text {number},words {number}\n" for number in range(20)),
    **{f"{cc_neg.IMAGES}/{number:09d}.jpg": (number, 9, 0) for number in range(20)},
}
VAL2017 = {
    "annotations/captions_val2017.json": {
        "images": [{"id": number, "file_name": f"{number}.jpg"} for number in (1, 2)],
        "annotations": [{"id": n, "image_id": 1 + n % 2, "caption": f"caption {n}"} for n in range(4)],
    },
    **{f"val2017/{number}.jpg": (number, 9, 0) for number in (1, 2)},
}
STS = {
    STS_B: "a\tb\t2012\t1\t2.5\tA man.\tA woman.\n",
    SICK: "pair_ID\tsentence_A\tsentence_B\trelatedness_score\n1\tA kid.\tA child.\t4.5\n",
}
COCO_P = {
    "coco_p.json": [{"image_id": 1, "query": "a dog", "paraphrase": "one hound"}],
    **{f"{place}/00000000000{len(place) % 2}.jpg": (9, 9, 0) for place in ("val2017", "unlabeled2017")},
}
NEGBENCH = {
    path: "image_path,correct_answer,caption_0,caption_1,caption_2,caption_3,correct_answer_template\n"
    f"/coco/1.jpg,0,{path} a,{path} b,c,d,hybrid\n"
    for path, _ in QUESTIONS.values()
} | {
    **{path: f"filepath,captions\n/coco/1.jpg,\"['{kind}', 'no {kind}']\"\n" for kind, path in CAPTIONS.items()},
    **{f"{folder}/1.jpg": (7, 9, 0) for folder in PICTURES.values()},
}
FILES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(PICTURES, NEGBENCH),
    "coco_retrieval": {
        "dataset_coco.json": {"images": KARPATHY}, **{f"val2014/{row['filename']}": RED for row in KARPATHY},
    },
    "flickr30k_retrieval": {
        "flickr30k_test_karpathy.txt": "image,caption\n10.jpg,one, two\n11.jpg,three\n",
        "flickr30k-images/10.jpg": RED, "flickr30k-images/11.jpg": RED,
    },
    "sugar_crepe": {
        "images/000000000001.jpg": RED,
        **{f"{one}.json": {"0": _triplet(one, "caption", "negative_caption")} for one in chain(*TYPES.values())},
    },
    "sugar_crepe_pp_text": {
        f"{subset}.json": [_triplet(subset, "caption", "caption2", "negative_caption")] for subset in SUBSETS
    },
    "vg_relation": {"visual_genome_relation.json": [RELATION], "images/7.jpg": RED},
    "spot_the_difference": {
        "annotations/test.json": [{"img_id": "4", "sentences": ["a car is gone", " "]}],
        "resized_images/4.png": RED, "resized_images/4_2.png": (9, 7, 0),
    },
    "cc_neg": CC_NEG, "cc_neg_semclip": CC_NEG, "coco_p": COCO_P, "coco_pe": COCO_P,
    "coco_val2017_retrieval": VAL2017, "modality_gap": VAL2017, "stsb": STS, "sickr": STS,
}  # fmt: skip
"""Benchmark -> its published files."""


def _write(home: Path, name: str) -> Path:
    folder = home / published_benchmarks()[name].folder
    write_files(folder, FILES[name])
    return folder


@pytest.mark.parametrize("name", FILES)
def test_what_a_benchmark_shows_is_in_a_test_set(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cc_neg, "TESTED", 2)
    folder = _write(tmp_path, name)
    toy = toy_context(folder, {})
    context = _Watched(toy.under_test, folder, allow_partial=True, image_features=toy.image_features)
    published_benchmarks()[name].score(context)
    sets = [found for _, found in load_test_sets(tmp_path) if not isinstance(found, str)]
    keys = {text_key(text) for tested in sets for text in tested.texts}
    assert context.shown
    assert {text_key(text) for text in context.shown} <= keys
    assert set(context.pictures) <= {path.name for tested in sets for path in tested.files}


def test_rows_that_only_train_are_not_in_a_test_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cc_neg, "TESTED", 2)
    for name in ("coco_retrieval", "cc_neg"):
        _write(tmp_path, name)
    tested: dict[str, Any] = dict(load_test_sets(tmp_path))
    assert sorted(tested["coco_retrieval"].texts) == ["test 1", "test 2"]
    assert {path.name for path in tested["cc_neg"].files} == {"000000001.jpg", "000000002.jpg"}


def test_pictures_of_image_sets_have_their_bytes(tmp_path: Path) -> None:
    names = image_sets()["eurosat"].class_folders or ()
    write_files(tmp_path / "eurosat" / "test", {f"{name}/1.png": (n, 0, 0) for n, name in enumerate(names)})
    found = dict(load_test_sets(tmp_path))["zero_shot_eurosat"]
    assert not isinstance(found, str), found
    encoded = {picture.encoded() for picture in found.pictures if picture.encoded}
    assert encoded == {path.read_bytes() for path in tmp_path.rglob("*.png")}


def test_every_benchmark_has_a_test_set_and_a_folder_without_any_has_none(tmp_path: Path) -> None:
    assert list(load_test_sets(tmp_path)) == []
    with pytest.raises(InputError, match=r"gone does not exist: .* set prepare\.heldout_testsets_dir to null"):
        list(load_test_sets(tmp_path / "gone"))
    folders = {test_set.folder for test_set in all_test_sets()}
    without = {name for name, benchmark in published_benchmarks().items() if benchmark.folder not in folders}
    assert without == set(NO_TEST_SET)
    for name in FILES:
        _write(tmp_path, name)
    shared = {"coco_pe", "coco_val2017_retrieval", "modality_gap"}
    assert {name for name, found in load_test_sets(tmp_path) if not isinstance(found, str)} >= set(FILES) - shared


COLUMNS = {"name": str, "size": int}
ROWS = [{"name": "a", "size": 1}, {"name": "b"}, "c", {"name": "d", "size": "4"}, {"name": "e", "size": 5}]


def test_incomplete_rows_and_other_counts_are_only_accepted_if_allowed(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    message = r"rows.json: 3 rows lack name or size \(row 1, 2, 3, counted from 0\)"
    with pytest.raises(InputError, match=f"{message}.*add --allow-partial"):
        TestSetFiles(tmp_path).read_rows("rows.json", COLUMNS)
    files = TestSetFiles(tmp_path, allow_partial=True)
    assert files.read_rows("rows.json", COLUMNS) == [ROWS[0], ROWS[4]]
    assert files.notes == ["rows.json: 3 rows lack name or size (row 1, 2, 3, counted from 0)"]
    (tmp_path / "rows.csv").write_text("name,size\na\nb,1\n")
    assert files.read_csv("rows.csv", {"name": str, "size": str}) == [{"name": "b", "size": "1"}]
    with pytest.raises(InputError, match=r"images: 2 found, 5,000 published: .*add --allow-partial"):
        TestSetFiles(tmp_path).expect("images", 2, 5000)
    files = TestSetFiles(tmp_path, allow_partial=True)
    files.expect("images", 5000, 5000)
    files.expect("images", 2, 5000)
    assert files.notes == ["images: 2 found, 5,000 published"]


def test_missing_damaged_and_other_files_are_named(tmp_path: Path) -> None:
    files = TestSetFiles(tmp_path, allow_partial=True)
    contents = {
        b"": "is missing", b"{": "is damaged", b"\xff\xfe": "is damaged", b"1": "holds no list of rows",
        b"[]": "has no row that can be scored", b'[{"name": 1}]': "has no row that can be scored",
    }  # fmt: skip
    for content, message in contents.items():
        if content:
            (tmp_path / "rows.json").write_bytes(content)
        with pytest.raises(InputError, match=f"rows.json {message}"):
            files.read_rows("rows.json", COLUMNS)
    for text, message in {"[]": "holds no JSON object", "{}": "has no list 'images'"}.items():
        (tmp_path / "rows.json").write_text(text)
        with pytest.raises(InputError, match=message):
            files.read_lists("rows.json", "images")
    with pytest.raises(InputError, match=r"rows.csv is damaged"):
        files.read_csv("rows.csv", COLUMNS)


def test_every_benchmark_is_found_and_lists_its_missing_files(tmp_path: Path) -> None:
    """Those without required files list both of their layouts."""
    for name, benchmark in published_benchmarks().items():
        required = [need for need in benchmark.needs if not need.optional]
        with pytest.raises(InputError) as fault:
            benchmark.check_files(tmp_path)
        message = str(fault.value)
        assert f"'{name}' lacks files: put into {tmp_path / benchmark.folder}" in message
        assert all(need.description in message for need in required), message
        assert "licence" in message
    assert published_families()["sts"] == ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
