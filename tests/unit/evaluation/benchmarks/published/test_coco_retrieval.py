"""Retrieval on COCO, Flickr30k, COCO-P and COCO-PE: ranks computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.evaluation.benchmarks.published import coco_p
from tests.support.published import coco, refused, scored
from tests.unit.data.test_sets.writing import write_files

RED, GREEN = (255, 0, 0), (0, 255, 0)
TABLE = {"red": (1, 0, 0), "leaf": (0, 1, 0), "mix, red": (0.8, 0.6, 0), "moss": (0, 1, 0)}
CAPTIONS = {
    "COCO_val2014_000000000002.jpg": ["red", "leaf"],
    "COCO_val2014_000000000010.jpg": ["moss", "mix, red", "leaf"],
}
RED_PICTURE, GREEN_PICTURE = CAPTIONS
"""A red picture, one of whose captions is wrong, and a green one with three captions."""
FLICKR = {"1000.jpg": ["red", "leaf"], "999.jpg": ["moss", "mix, red", "leaf"]}
COCO = coco(CAPTIONS, first=9)
COCO["images"].reverse()


def _karpathy(name: str, texts: list[str], split: str) -> dict[str, object]:
    sentences = [{"raw": text, "tokens": text.split(), "imgid": 0, "sentid": 0} for text in texts]
    return {"filepath": "val2014", "filename": name, "split": split, "cocoid": 1, "sentences": sentences}


KARPATHY = [_karpathy(name, texts, "test") for name, texts in reversed(CAPTIONS.items())]
KARPATHY.append(_karpathy("COCO_train2014_000000000001.jpg", ["red"], "restval"))


@pytest.mark.parametrize(
    ("file", "content", "name", "pictures", "captions"),
    [
        ("coco_test_karpathy.json", COCO, "coco_retrieval", "val2014", "25,010"),
        ("dataset_coco.json", {"images": KARPATHY, "dataset": "coco"}, "coco_retrieval", "val2014", "25,010"),
        ("annotations/captions_val2017.json", COCO, "coco_val2017_retrieval", "val2017", "25,014"),
    ],
)
def test_coco_in_every_format(tmp_path: Path, file: str, content: Any, name: str, pictures: str, captions: str) -> None:
    """Captions in gallery order: red, leaf | moss, mix, leaf."""
    write_files(tmp_path, {file: content, f"{pictures}/{RED_PICTURE}": RED, f"{pictures}/{GREEN_PICTURE}": GREEN})
    found = scored(name, tmp_path, TABLE, ks=(1, 2))
    assert found.values["text_to_image/recall_at_1"] == [1, 0, 1, 0, 1]
    assert found.values["text_to_image/recall_at_2"] == [1, 1, 1, 1, 1]
    # The green picture's own captions tie with the other's "leaf", which stands before them.
    assert found.values["image_to_text/recall_at_1"] == [1, 0]
    assert found.values["image_to_text/recall_at_2"] == [1, 1]
    assert found.pictures == {f"text_to_image/recall_at_{k}": [0, 0, 1, 1, 1] for k in (1, 2, 5, 10)}
    total = 3 / 5 + 1 / 2 + 4
    assert found.scalars == pytest.approx({"rsum": total, "mean_recall": total / 6})
    assert [note.split(": ", 1)[1] for note in found.notes] == [
        "test images: 2 found, 5,000 published",
        f"test captions: 5 found, {captions} published",
    ]


def test_flickr_lines_may_hold_commas(tmp_path: Path) -> None:
    lines = ["image,caption", *(f"{name},{text}" for name, texts in FLICKR.items() for text in texts), ""]
    write_files(tmp_path, {"flickr30k_test_karpathy.txt": "\n".join(lines)})
    write_files(tmp_path / "flickr30k-images", {"1000.jpg": RED, "999.jpg": GREEN})
    found = scored("flickr30k_retrieval", tmp_path, TABLE)
    assert found.values["text_to_image/recall_at_1"] == [1, 0, 1, 0, 1]
    assert "mix, red" in found.asked
    write_files(tmp_path, {"flickr30k_test_karpathy.txt": "image,caption\n1000.jpg;red\n"})
    refused("flickr30k_retrieval", tmp_path, r"1 lines are not <name>.jpg,<caption>, first line 2")


def test_other_formats_of_captions_and_pairs_are_refused(tmp_path: Path) -> None:
    images = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}]
    for image, message in (
        (None, r"has none of coco_test_karpathy.json, dataset_coco.json"),
        (7, "1 captions belong to no image, first image_id 7"),
        (1, "1 images have no caption, first b.jpg"),
    ):
        if image:
            content = {"images": images, "annotations": [{"image_id": image, "caption": "red"}]}
            write_files(tmp_path, {"coco_test_karpathy.json": content})
        refused("coco_retrieval", tmp_path, message)
    write_files(tmp_path, PAIR_FILES)
    for rows, allowed, message in (
        ([*PAIR_ROWS, {"image_id": 3, "query": "blue"}], False, r"1 rows lack image or query or paraphrase \(row 2,"),
        ([{"image_id": 9, "query": "blue", "paraphrase": "sky"}], True,
         r"row 0 names image '000000000009.jpg', which the gallery lacks"),
    ):  # fmt: skip
        write_files(tmp_path, {"coco_p.json": rows})
        refused("coco_p", tmp_path, message, PAIR_TABLE, allow_partial=allowed)


PAIR_TABLE = {"red": (1, 0, 0), "scarlet": (0.9, 0.3, 0.1), "moss": (0.1, 1, 0.2), "blue": (0, 0, 1)}
PAIR_ROWS = [
    {"image": "val2017/000000000001.png", "query": "red", "paraphrase": "scarlet"},
    {"image": "000000000002.png", "caption": "moss", "paraphrase": "blue"},
]
"""The first paraphrase ranks the images as its query does, the second one does not."""


PAIR_FILES = {
    "coco_p.json": PAIR_ROWS,
    **{f"val2017/{number:012d}.png": colour for number, colour in enumerate([RED, GREEN, (0, 0, 255)], start=1)},
    "unlabeled2017/000000000004.png": (230, 80, 25),
}


def test_both_galleries_of_coco_p_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red ties on green and blue, which go by name: 1 2 3; scarlet 1 2 3. Moss 2 3 1, blue 3 1 2."""
    write_files(tmp_path, PAIR_FILES)
    small, large = (scored(name, tmp_path, PAIR_TABLE, ks=(1, 2)) for name in ("coco_p", "coco_pe"))
    named = small.values
    assert named["ao_at_1"] == [1, 0]
    assert named["ao_at_2"] == [1, pytest.approx((0 + 1 / 2) / 2)]
    assert named["js_at_2"] == [1, pytest.approx(1 / 3)]
    assert named["query_recall_at_1"] == [1, 1]
    assert named["paraphrase_recall_at_1"] == [1, 0]
    assert "ao_at_10" not in named, "the gallery has three images"
    monkeypatch.setattr(coco_p, "REPORTED", 3)
    assert "ao_at_3" in scored("coco_p", tmp_path, PAIR_TABLE, ks=(1,)).values
    assert small.notes == ["coco_p.json: 2 found, 4,155 published", "val2017: images: 3 found, 5,000 published"]
    # The large gallery has an orange image more, which is the first for scarlet, and the second for red.
    assert (large.values["ao_at_1"][0], large.values["js_at_2"][0]) == (0, 1)
    assert "unlabeled2017: images: 1 found, 123,403 published" in large.notes
