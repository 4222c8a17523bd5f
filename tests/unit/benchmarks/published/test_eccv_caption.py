"""ECCV Caption and CxC: the package's matches, by hand and against the package's own evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.benchmarks.published import find_published
from components.benchmarks.published.eccv_caption import ranking_scores
from components.core.system.errors import InputError
from components.test_sets.readers import eccv_caption as reader
from components.test_sets.readers.eccv_caption import FILE, PublishedMatches, published_matches
from tests.support.toy_context import colour_image, toy_context

TABLE = {"red": (1, 0, 0), "reddish": (0.9, 0.1, 0), "leaf": (0, 1, 0), "moss": (0.1, 0.9, 0)}
CAPTIONS = {11: "red", 12: "reddish", 21: "leaf", 22: "moss"}
ABOUT = {11: 1, 12: 1, 21: 2, 22: 2}
COLOURS = {1: (255, 0, 0), 2: (0, 255, 0), 3: (200, 40, 0)}
SMALL = PublishedMatches(
    captions=[*CAPTIONS],
    images=[1, 2, 3],
    about=ABOUT,
    # The third image is red too; the fourth match is not in the gallery.
    eccv={"text_to_image": {11: [1, 3], 12: [1, 3], 21: [2, 3]}, "image_to_text": {1: [11, 12, 99]}},
    cxc={"text_to_image": {12: [3]}, "image_to_text": {2: [22]}},
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four captions of three images, and a caption that is not of the test split."""
    monkeypatch.setattr(reader, "published_matches", lambda: SMALL)
    rows = [{"id": number, "image_id": ABOUT[number], "caption": text} for number, text in CAPTIONS.items()]
    rows.append({"id": 5, "image_id": 9, "caption": "of the training split"})
    (tmp_path / FILE).write_text(json.dumps({"annotations": rows}))
    for image, colour in COLOURS.items():
        colour_image(tmp_path / "val2014" / f"COCO_val2014_{image:012d}.jpg", colour)
    return tmp_path


def test_by_hand(folder: Path) -> None:
    benchmark = find_published("eccv_caption")
    found = benchmark.score(toy_context(folder, TABLE, ks=(1, 2)))
    values = {name.removeprefix("eccv_caption/"): value.tolist() for name, value in found.values.items()}
    # "red" finds images 1, 3, 2; "leaf" finds 2, 3, 1: both halves of both.
    assert values["eccv/text_to_image/map_at_r"] == [1, 1, 1]
    # Image 1 finds "red", "reddish", "moss": two of three, the third match is nowhere.
    assert values["eccv/image_to_text/r_precision"] == values["eccv/image_to_text/map_at_r"] == [pytest.approx(2 / 3)]
    assert values["eccv/image_to_text/recall_at_1"] == values["cxc/image_to_text/recall_at_2"] == [1]
    assert values["cxc/image_to_text/recall_at_1"] == [0]
    assert found.pictures["eccv_caption/eccv/text_to_image/map_at_r"].tolist() == [0, 0, 1]
    assert all(benchmark.metric(name) for name in found.values)
    (folder / FILE).write_text(json.dumps({"annotations": [{"id": 11, "caption": "red"}]}))
    with pytest.raises(InputError, match="none of the queries"):
        benchmark.score(toy_context(folder, TABLE, allow_partial=True, ks=(1,)))


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
