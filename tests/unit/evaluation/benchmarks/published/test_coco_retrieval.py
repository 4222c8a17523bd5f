"""Retrieval on COCO, Flickr30k, ECCV Caption, CxC, COCO-P and COCO-PE by hand; edits of case and punctuation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.data.test_sets.readers import eccv_caption as reader
from components.data.test_sets.readers.eccv_caption import FILE, PublishedMatches, published_matches
from components.evaluation.benchmarks.published import coco_p
from components.evaluation.benchmarks.published.eccv_caption import ranking_scores
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


MATCH_TABLE = {"red": (1, 0, 0), "reddish": (0.9, 0.1, 0), "leaf": (0, 1, 0), "moss": (0.1, 0.9, 0)}
MATCH_CAPTIONS = {11: "red", 12: "reddish", 21: "leaf", 22: "moss"}
ABOUT = {11: 1, 12: 1, 21: 2, 22: 2}
COLOURS = {1: RED, 2: GREEN, 3: (200, 40, 0)}
SMALL = PublishedMatches(
    captions=[*MATCH_CAPTIONS],
    images=[1, 2, 3],
    about=ABOUT,
    # The third image is red too; the fourth match is not in the gallery.
    eccv={"text_to_image": {11: [1, 3], 12: [1, 3], 21: [2, 3]}, "image_to_text": {1: [11, 12, 99]}},
    cxc={"text_to_image": {12: [3]}, "image_to_text": {2: [22]}},
)


def test_eccv_caption_and_cxc_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four captions of three images, and a caption that is not of the test split."""
    monkeypatch.setattr(reader, "published_matches", lambda: SMALL)
    rows = [{"id": number, "image_id": ABOUT[number], "caption": text} for number, text in MATCH_CAPTIONS.items()]
    rows.append({"id": 5, "image_id": 9, "caption": "of the training split"})
    pictures = {f"val2014/COCO_val2014_{image:012d}.jpg": colour for image, colour in COLOURS.items()}
    write_files(tmp_path, {FILE: {"annotations": rows}, **pictures})
    found = scored("eccv_caption", tmp_path, MATCH_TABLE, ks=(1, 2), allow_partial=False)
    values = found.values
    # "red" finds images 1, 3, 2; "leaf" finds 2, 3, 1: both halves of both.
    assert values["eccv/text_to_image/map_at_r"] == [1, 1, 1]
    # Image 1 finds "red", "reddish", "moss": two of three, the third match is nowhere.
    assert values["eccv/image_to_text/r_precision"] == values["eccv/image_to_text/map_at_r"] == [pytest.approx(2 / 3)]
    assert values["eccv/image_to_text/recall_at_1"] == values["cxc/image_to_text/recall_at_2"] == [1]
    assert values["cxc/image_to_text/recall_at_1"] == [0]
    assert found.pictures.keys() == {
        f"eccv/text_to_image/{name}" for name in ("map_at_r", "r_precision", "recall_at_1")
    }
    assert found.pictures["eccv/text_to_image/map_at_r"] == [0, 0, 1]
    write_files(tmp_path, {FILE: {"annotations": [{"id": 11, "caption": "red"}]}})
    refused("eccv_caption", tmp_path, "none of the queries", MATCH_TABLE, allow_partial=True, ks=(1,))


def test_the_package_has_what_the_papers_say() -> None:
    known = published_matches()
    assert (len(known.captions), len(known.images)) == (25_000, 5_000)
    counts = {way: (len(found), round(np.mean([*map(len, found.values())]), 1)) for way, found in known.eccv.items()}
    assert counts == {"text_to_image": (1_332, 8.5), "image_to_text": (1_261, 17.9)}
    assert {way: len(found) for way, found in known.cxc.items()} == {"text_to_image": 24_972, "image_to_text": 5_000}


@given(st.data())
def test_scores_are_those_of_the_packages_own_evaluation(data: st.DataObject) -> None:
    from eccv_caption._metrics import compute_eccv_metrics

    ranked = data.draw(st.permutations(range(12)))
    matching = data.draw(st.sets(st.integers(0, 15), min_size=1, max_size=12))
    expected = compute_eccv_metrics({7: ranked}, {7: list(matching)})
    names = {"map_at_r": "eccv_map_at_r", "r_precision": "eccv_rprecision", "recall_at_1": "eccv_r1"}
    wanted = {ours: expected[theirs] for ours, theirs in names.items()}
    assert ranking_scores(np.array(ranked), matching) == pytest.approx(wanted)


STEADY, MOVED = (1.0, 0.5, 0.2), (0.5, 1.0, 0.2)
PICTURES = {"blue.png": (0, 0, 255), "green.png": GREEN, "more/red.webp": RED}


def test_an_upper_case_query_ranks_two_of_three_pictures_the_other_way(tmp_path: Path) -> None:
    """`lower` and `no_end` leave the query as it is, so five edits count; only one moves the feature."""
    write_files(tmp_path, {"queries.txt": "\ufeffdog\n\n dog \n", **{f"images/{k}": v for k, v in PICTURES.items()}})
    table = {"dog": STEADY, "DOG": MOVED, **dict.fromkeys(("Dog", "dog.", "dog!", "dog?"), STEADY)}
    scores = scored("brittleness", tmp_path, table, ks=(1, 2, 5), allow_partial=False)
    found = scores.values
    kinds = ("upper", "capital", "full_stop", "exclamation", "question")
    one_edit = {"cosine": 1.04 / 1.29, "rank_correlation": 0.5, "overlap_at_1": 0, "overlap_at_2": 1, "ao_at_2": 0.5}
    for metric, moved in one_edit.items():
        assert found[metric] == pytest.approx([moved, 1, 1, 1, 1], abs=1e-6), metric
        assert [found[f"edit_{kind}/{metric}"][0] for kind in kinds] == pytest.approx(found[metric])
    assert not any(name.endswith("at_5") for name in found)
    # All edits of one query are one group of the intervals.
    assert scores.pictures["cosine"] == [0] * 5
    assert all(metric.higher_is_better for metric in scores.declared.metrics)


def test_coco_has_the_first_caption_of_each_image(tmp_path: Path) -> None:
    listed = coco({"1.png": ["first dog", "second dog"], "2.png": ["a cat"]})
    listed["annotations"].append(listed["annotations"].pop(1))
    write_files(tmp_path, {"annotations/captions_val2017.json": listed, "val2017/1.png": RED, "val2017/2.png": GREEN})
    found = scored("brittleness_coco", tmp_path, ks=(1,))
    assert len(found.values["cosine"]) == 10
    assert {*found.asked} >= {"first dog", "A CAT", "a cat?"}
    assert "second dog" not in found.asked


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"queries.txt": b"\xff\xfe", "images/a.png": (1, 2, 3)}, r"queries.txt is damaged .*: save it as UTF-8"),
        ({"queries.txt": "\n", "images/a.png": (1, 2, 3)}, "needs a query in queries.txt and a picture"),
        ({"queries.txt": "dog", "images/a.txt": ""}, "needs a query in queries.txt and a picture"),
    ],
)
def test_empty_and_damaged_files_are_refused(tmp_path: Path, files: dict[str, object], message: str) -> None:
    write_files(tmp_path, files)
    refused("brittleness", tmp_path, message)
