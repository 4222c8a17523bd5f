"""Retrieval on Karpathy's splits: both formats, several captions, hand-computed ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from components.benchmarks.published import find_published
from components.core.system.errors import InputError
from tests.support.toy_context import colour_image, toy_context

TABLE = {"red": (1, 0, 0), "leaf": (0, 1, 0), "mix, red": (0.8, 0.6, 0), "moss": (0, 1, 0)}
CAPTIONS = {
    "COCO_val2014_000000000002.jpg": ["red", "leaf"],
    "COCO_val2014_000000000010.jpg": ["moss", "mix, red", "leaf"],
}
RED_PICTURE, GREEN_PICTURE = CAPTIONS
"""A red picture, one of whose captions is wrong, and a green one with three captions."""
FLICKR = {"1000.jpg": ["red", "leaf"], "999.jpg": ["moss", "mix, red", "leaf"]}


def _coco(folder: Path, file: str = "coco_test_karpathy.json") -> None:
    images = [{"id": 10, "file_name": GREEN_PICTURE}, {"id": 2, "file_name": RED_PICTURE}]
    texts = [(int(name[-6:-4]), text) for name, texts in CAPTIONS.items() for text in texts]
    annotations = [{"id": row, "image_id": image, "caption": text} for row, (image, text) in enumerate(texts)]
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(json.dumps({"images": images, "annotations": annotations}))


def _karpathy(folder: Path) -> None:
    def row(name: str, texts: list[str], split: str) -> dict[str, object]:
        sentences = [{"raw": text, "tokens": text.split(), "imgid": 0, "sentid": 0} for text in texts]
        return {"filepath": "val2014", "filename": name, "split": split, "cocoid": 1, "sentences": sentences}

    rows = [row(name, texts, "test") for name, texts in reversed(CAPTIONS.items())]
    rows.append(row("COCO_train2014_000000000001.jpg", ["red"], "restval"))
    (folder / "dataset_coco.json").write_text(json.dumps({"images": rows, "dataset": "coco"}))


@pytest.mark.parametrize(
    ("write", "name", "pictures", "captions"),
    [
        (_coco, "coco_retrieval", "val2014", "25,010"),
        (_karpathy, "coco_retrieval", "val2014", "25,010"),
        (partial(_coco, file="annotations/captions_val2017.json"), "coco_val2017_retrieval", "val2017", "25,014"),
    ],
)
def test_coco_by_hand_in_every_format(
    tmp_path: Path, write: Callable[[Path], None], name: str, pictures: str, captions: str
) -> None:
    """Captions in gallery order: red, leaf | moss, mix, leaf."""
    write(tmp_path)
    colour_image(tmp_path / pictures / RED_PICTURE, (255, 0, 0))
    colour_image(tmp_path / pictures / GREEN_PICTURE, (0, 255, 0))
    context = toy_context(tmp_path, TABLE, allow_partial=True, ks=(1, 2))
    scores = find_published(name).score(context)
    named = {metric.removeprefix(f"{name}/"): found.tolist() for metric, found in scores.values.items()}
    assert named["text_to_image/recall_at_1"] == [1, 0, 1, 0, 1]
    assert named["text_to_image/recall_at_2"] == [1, 1, 1, 1, 1]
    # The green picture's own captions tie with the other's "leaf", which stands before them.
    assert named["image_to_text/recall_at_1"] == [1, 0]
    assert named["image_to_text/recall_at_2"] == [1, 1]
    assert scores.pictures.keys() == {f"{name}/text_to_image/recall_at_{k}" for k in (1, 2, 5, 10)}
    assert all(found.tolist() == [0, 0, 1, 1, 1] for found in scores.pictures.values())
    total = 3 / 5 + 1 / 2 + 4
    assert scores.scalars[f"{name}/rsum"] == pytest.approx(total)
    assert scores.scalars[f"{name}/mean_recall"] == pytest.approx(total / 6)
    assert [note.split(": ", 1)[1] for note in context.notes] == [
        "test images: 2 found, 5,000 published",
        f"test captions: 5 found, {captions} published",
    ]
    declared = find_published(name)
    assert all(declared.metric(metric) for metric in [*scores.values, *scores.scalars])


def test_flickr_lines_may_hold_commas(tmp_path: Path) -> None:
    lines = ["image,caption", *(f"{name},{text}" for name, texts in FLICKR.items() for text in texts), ""]
    (tmp_path / "flickr30k_test_karpathy.txt").write_text("\n".join(lines))
    colour_image(tmp_path / "flickr30k-images" / "1000.jpg", (255, 0, 0))
    colour_image(tmp_path / "flickr30k-images" / "999.jpg", (0, 255, 0))
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    scores = find_published("flickr30k_retrieval").score(context)
    assert scores.values["flickr30k_retrieval/text_to_image/recall_at_1"].tolist() == [1, 0, 1, 0, 1]
    assert "mix, red" in context.under_test.encoder.asked  # type: ignore[attr-defined]
    (tmp_path / "flickr30k_test_karpathy.txt").write_text("image,caption\n1000.jpg;red\n")
    with pytest.raises(InputError, match=r"1 lines are not <name>.jpg,<caption>, first line 2"):
        find_published("flickr30k_retrieval").score(toy_context(tmp_path, TABLE))


def test_other_formats_are_refused(tmp_path: Path) -> None:
    images = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}]
    for image, message in (
        (None, r"has none of coco_test_karpathy.json, dataset_coco.json"),
        (7, "1 captions belong to no image, first image_id 7"),
        (1, "1 images have no caption, first b.jpg"),
    ):
        if image:
            content = {"images": images, "annotations": [{"image_id": image, "caption": "red"}]}
            (tmp_path / "coco_test_karpathy.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=message):
            find_published("coco_retrieval").score(toy_context(tmp_path, TABLE))
