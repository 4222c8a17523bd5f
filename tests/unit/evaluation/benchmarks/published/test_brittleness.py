"""Edits of case and punctuation by hand: which of them count, and how far features and rankings move."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.published import coco, refused, scored
from tests.unit.data.test_sets.writing import write_files

STEADY, MOVED = (1.0, 0.5, 0.2), (0.5, 1.0, 0.2)
RED, GREEN = (255, 0, 0), (0, 255, 0)
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
