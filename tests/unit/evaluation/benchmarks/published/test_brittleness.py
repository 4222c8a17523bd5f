"""Edits of case and punctuation by hand: which of them count, and how far features and rankings move."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.system.errors import InputError
from components.evaluation.benchmarks.published import find_published
from tests.support.toy_context import toy_context
from tests.unit.data.test_sets.writing import write_files

STEADY, MOVED = (1.0, 0.5, 0.2), (0.5, 1.0, 0.2)
PICTURES = {"blue.png": (0, 0, 255), "green.png": (0, 255, 0), "more/red.webp": (255, 0, 0)}


def test_an_upper_case_query_ranks_two_of_three_pictures_the_other_way(tmp_path: Path) -> None:
    """`lower` and `no_end` leave the query as it is, so five edits count; only one moves the feature."""
    write_files(tmp_path, {"queries.txt": "\ufeffdog\n\n dog \n", **{f"images/{k}": v for k, v in PICTURES.items()}})
    table = {"dog": STEADY, "DOG": MOVED, **dict.fromkeys(("Dog", "dog.", "dog!", "dog?"), STEADY)}
    benchmark = find_published("brittleness")
    scores = benchmark.score(toy_context(tmp_path, table, ks=(1, 2, 5)))
    found = {name.removeprefix("brittleness/"): values.tolist() for name, values in scores.values.items()}
    kinds = ("upper", "capital", "full_stop", "exclamation", "question")
    one_edit = {"cosine": 1.04 / 1.29, "rank_correlation": 0.5, "overlap_at_1": 0, "overlap_at_2": 1, "ao_at_2": 0.5}
    for metric, moved in one_edit.items():
        assert found[metric] == pytest.approx([moved, 1, 1, 1, 1], abs=1e-6), metric
        assert [found[f"edit_{kind}/{metric}"][0] for kind in kinds] == pytest.approx(found[metric])
    assert not any(name.endswith("at_5") for name in found)
    # All edits of one query are one group of the intervals.
    assert scores.pictures["brittleness/cosine"].tolist() == [0] * 5
    assert all(benchmark.metric(name).higher_is_better for name in scores.values)


def test_coco_has_the_first_caption_of_each_image(tmp_path: Path) -> None:
    listed = [{"id": number, "file_name": f"{number}.png"} for number in (1, 2)]
    captions = [(1, "first dog"), (2, "a cat"), (1, "second dog")]
    annotations = [{"image_id": image, "caption": text} for image, text in captions]
    write_files(tmp_path, {
        "annotations/captions_val2017.json": {"images": listed, "annotations": annotations},
        "val2017/1.png": (255, 0, 0), "val2017/2.png": (0, 255, 0),
    })  # fmt: skip
    context = toy_context(tmp_path, {}, allow_partial=True, ks=(1,))
    assert len(find_published("brittleness_coco").score(context).values["brittleness_coco/cosine"]) == 10
    asked = set(context.under_test.encoder.asked)  # type: ignore[attr-defined]
    assert asked >= {"first dog", "A CAT", "a cat?"}
    assert "second dog" not in asked


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
    with pytest.raises(InputError, match=message):
        find_published("brittleness").score(toy_context(tmp_path, {}))
