"""Pairs of a query log: lines become weighted pairs whatever their order, faults are told with file and line."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from components.core.settings import Counts, Prepare, Settings
from components.core.tables.files import image_id
from components.data.source import Pair
from components.data.sources.query_log import read_listing
from tests.unit.data.sources import reading
from tests.unit.data.sources.published_folders import picture, write_pictures
from tests.unit.data.sources.reading import Damage, assert_refused, holding, pairs_of, without

Rows = list[tuple[str, ...]]
HEADER = "query\timage\tweight"
ROWS: Rows = [
    ("red bus", "0.png", "9"),
    ("red bus", "1.png", "0.5"),
    ("a bus", "0.png", "3"),
    ("dog", "2.png", ""),
    ("dog, wet", "3.png", "2"),
    ("dog", "4.png", "1e2"),
    ("cat", "5.png", "7"),
]


Make = Callable[..., Settings]


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any]) -> Make:
    """Writes a folder of six images and the given rows; returns settings that name it."""

    def make(rows: Rows = ROWS, header: str = HEADER, **changes: Any) -> Settings:
        folder = tmp_path / "shop"
        write_pictures(folder, range(6))
        (folder / "queries.tsv").write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", "utf-8")
        counts = {"train": 4, "val": 1, "test": 1}
        named = {"source": "query_log", "folder": str(folder), "counts": counts}
        return reading.prepare_settings(raw_params, **named | changes)

    return make


def _split(rows: Rows, test: str = "0.png", val: str = "2.png") -> Rows:
    """The rows with a split each: of these two images, and of all others to train on."""
    split_of = {test: "test", val: "val"}
    return [(*row, split_of.get(row[1], "train")) for row in rows]


def _training_weights(settings: Settings) -> dict[tuple[str, str], float]:
    """Query and image -> weight."""
    return {(pair.caption, pair.image_id): pair.weight for pair in pairs_of(settings) if pair.split == "train"}


def test_weights_come_with_the_pairs_and_other_columns_are_not_read(world: Make, tmp_path: Path) -> None:
    rows = [row for pairs in reading.prepared(world(), tmp_path).values() for row in pairs]
    weights = {(query, image_id(picture(int(image[0])))): float(weight or 1) for query, image, weight in ROWS}
    assert all(weights[row["caption"], row["image_id"]] == row["weight"] for row in rows)
    assert len(rows) >= 6
    assert pairs_of(world([(*row, "7") for row in ROWS], "query\timage\tclicks\tsession")) == pairs_of(world())


def test_the_strongest_query_of_a_tested_image_is_its_pair_and_all_are_queries(world: Make, tmp_path: Path) -> None:
    (tested,) = reading.prepared(world(_split(ROWS), f"{HEADER}\tsplit"), tmp_path)["test"]
    assert (tested["caption"], tested["weight"]) == ("red bus", 9)
    queries = {(query["text"], query["image_id"]) for query in reading.caption_queries(tmp_path)}
    assert queries == {("red bus", tested["image_id"]), ("a bus", tested["image_id"])}


def test_lines_of_one_query_and_image_add_up_in_one_split(world: Make) -> None:
    rows = [*ROWS, ("cat", "5.png", "2"), (" cat ", "5.png", ""), ("Cat", "5.png", "4")]
    found = _training_weights(world(_split(rows), f"{HEADER}\tsplit", counts={"train": 5, "val": 1, "test": 1}))
    assert (found["cat", image_id(picture(5))], found["Cat", image_id(picture(5))]) == (10, 4)
    assert found["red bus", image_id(picture(1))] == 0.5
    rows = [*_split(ROWS), ("cat", "5.png", "1", "val")]
    pairs = pairs_of(world(rows, f"{HEADER}\tsplit", counts={"train": 3, "val": 2, "test": 1}))
    assert [(pair.split, pair.weight) for pair in pairs if pair.image_id == image_id(picture(5))] == [("val", 8)]


def test_a_copy_of_an_image_has_its_clicks_too(world: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = world(_split([*ROWS, ("cat", "copy.png", "5")]), f"{HEADER}\tsplit")
    shutil.copy(tmp_path / "shop" / "5.png", tmp_path / "shop" / "copy.png")
    assert _training_weights(settings)["cat", image_id(picture(5))] == 12
    assert "queries.tsv: 1 lines left out that repeat the image and the caption of another" in capsys.readouterr().out


LINES = st.lists(
    st.tuples(
        st.sampled_from(["dog", "cat", "red bus", "Dog"]),
        st.sampled_from([f"{number}.png" for number in range(6)]),
        st.floats(1e-3, 1e12),
        st.sampled_from(["", "train", "test"]),
    ),
    min_size=1,
    max_size=30,
)


@given(LINES, st.randoms(use_true_random=False))
@examples(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_order_of_lines_does_not_matter(tmp_path: Path, lines: Rows, rng: random.Random) -> None:
    """Sums of floats depend on the order of summing in their last digits."""
    shuffled = rng.sample(lines, len(lines))
    one, other = (_listed(tmp_path, rows) for rows in (lines, shuffled))
    assert one == other
    exact: dict[tuple[str, str, str], Fraction] = {}
    for query, image, weight, split in lines:
        exact[image, query, split] = exact.get((image, query, split), Fraction(0)) + Fraction(weight)
    assert {place[:3]: place[3] for place in one} == {key: float(total) for key, total in exact.items()}


def _listed(folder: Path, rows: Rows) -> list[tuple[str, str, str, float | None]]:
    names = ("query", "image", "weight", "split")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    settings = Prepare(source="query_log", counts=Counts(train=1, val=1, test=1), folder=folder)
    return [
        (one.image.name, one.caption, one.split, one.weight)
        for one in read_listing(settings)[1]
        if isinstance(one, Pair)
    ]


def test_a_weight_that_is_not_a_number_above_zero_is_named_with_its_line(world: Make, tmp_path: Path) -> None:
    for weight in ("0", "-1", "nan", "inf", "1e999", "many", "3 or 4", "1e301"):
        settings = world([*ROWS[:2], ("a bus", "0.png", weight), *ROWS[3:]])
        assert_refused(settings, rf"queries\.tsv: line 4 has weight '{weight}': write a number above 0")
    settings = world()
    (tmp_path / "shop" / "queries.tsv").unlink()
    for weight, shown in (("true", "True"), ("[1]", r"\[1\]"), ("NaN", "nan"), ("1" + "0" * 400, "10000")):
        line = f'{{"query": "dog", "image": "2.png", "weight": {weight}}}\n'
        (tmp_path / "shop" / "queries.jsonl").write_text(line)
        assert_refused(settings, rf"queries\.jsonl: line 1 has weight '{shown}")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without("queries.tsv"), r"queries\.tsv is missing: write one line"),
        (holding("queries.tsv", "dog\t0.png\n"), r"dog, 0\.png and none for 'image': .*by a tab"),
        (holding("queries.tsv", "query\timage\tclicks\tweight\n"), "names the column weight twice"),
        (holding("3.png", b"no picture"), r"3\.png is not a readable image"),
    ],
)
def test_faults_are_reported_in_one_line(world: Make, tmp_path: Path, harm: Damage, message: str) -> None:
    """Those that source `folder` reports in the same way are tested there."""
    settings = world()
    harm(tmp_path / "shop")
    assert_refused(settings, message)
