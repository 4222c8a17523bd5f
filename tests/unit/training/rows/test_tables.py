"""Rows joined from tables, and the facts of a query log about them, compared with the log pair by pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.core.system.errors import InputError
from components.core.tables import records
from components.core.tables.records import PAIRS
from components.training.rows.tables import QueryLog, has_weights, input_files, join_rows


def _write_answers(file: Path, table: str, *samples: tuple[str, int], **texts: str) -> None:
    """A table of answers about these pairs; a text not given has the pair, its column's name and its sample."""
    schema = getattr(records, table.upper()).schema
    known = {"id": "{0}", "caption": "{0} caption"} | texts
    columns: dict[str, list[Any]] = {}
    for field in schema:
        text = known.get(field.name, f"{{0}} {field.name} {{1}}")
        columns[field.name] = [None if field.nullable else text.format(*sample) for sample in samples]
        if field.name.startswith("similarity"):
            columns[field.name] = [0.5 for _ in samples]
    columns["sample"] = [sample for _, sample in samples]
    getattr(records, table.upper()).write(file, columns)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    ids = ["a", "b", "c"]
    columns = {"id": ids, "image_id": ids, "image": [b"i"] * 3, "caption": ["a alt", "b alt", "c alt"]}
    PAIRS.write(tmp_path / "train.parquet", {**columns, "facts": [None] * 3})
    return tmp_path / "train.parquet"


def test_a_row_is_in_every_table_or_refused(pairs: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.parquet" for name in ("paraphrases", "negations")}
    _write_answers(files["paraphrases"], "paraphrases", ("a", 0), ("a", 1), ("b", 0))
    _write_answers(files["negations"], "negations", ("a", 0), ("a", 1), ("c", 0))
    wanted = {"image", "caption", "paraphrase_1", "negation"}
    rows = join_rows(wanted, tmp_path, pairs)
    assert list(rows.columns) == ["id", "caption", "paraphrase_1", "negation"]
    assert sorted(rows.itertuples(index=False, name=None)) == [
        ("a", "a caption", f"a paraphrase_1 {one}", f"a negation {other}") for one in (0, 1) for other in (0, 1)
    ]
    assert input_files(wanted, tmp_path, pairs) == files
    # Captions come from the pairs where no other text is read.
    rows = join_rows({"image", "caption"}, tmp_path, pairs)
    assert rows.to_dict("list") == {"id": ["a", "b", "c"], "caption": ["a alt", "b alt", "c alt"]}
    assert input_files({"image", "caption"}, tmp_path, pairs) == {"pairs": pairs}
    for wanted, message in [
        ({"caption", "paraphrase_3"}, "no training table has the column 'paraphrase_3': known are absence, caption, "),
        ({"absence"}, r"absences\.parquet is missing: run `dvc repro`"),
        ({"paraphrase_1", "negation"}, r"no pair is in all of .*paraphrases\.parquet, .*negations\.parquet: raise"),
    ]:
        _write_answers(tmp_path / "paraphrases.parquet", "paraphrases", ("a", 0))
        _write_answers(tmp_path / "negations.parquet", "negations", ("b", 0))
        with pytest.raises(InputError, match=message):
            join_rows(wanted, tmp_path, pairs)


def test_a_named_file_is_read_instead_of_the_table_with_the_same_columns(pairs: Path, tmp_path: Path) -> None:
    wanted, birds = {"image", "other_image", "difference"}, tmp_path / "differences_cub.parquet"
    for file, text in ((tmp_path / "differences.parquet", "of things"), (birds, "of birds")):
        _write_answers(file, "differences", ("a", 0), other_id="b", difference=text)
    assert join_rows(wanted, birds, pairs).to_dict("records") == [
        {"id": "a", "caption": "a caption", "difference": "of birds", "other_id": "b"}
    ]
    assert input_files(wanted, birds, pairs) == {"differences": birds}
    # A folder that holds both has each under its own name.
    assert join_rows(wanted, tmp_path, pairs)["difference"].tolist() == ["of things"]
    with pytest.raises(InputError, match=r"differences_cub\.parquet"):
        join_rows({"image", "caption", "negation"}, birds, pairs)


Log = list[tuple[str, str, float | None]]
"""Query, image, weight."""


def _write(path: Path, log: Log) -> list[str]:
    """The log as a table of pairs; returns their ids."""
    columns: dict[str, list[Any]] = {
        "id": [f"pair-{row}" for row in range(len(log))],
        "image_id": [image for _, image, _ in log],
        "image": [image.encode() for _, image, _ in log],
        "caption": [query for query, _, _ in log],
        "weight": [weight for _, _, weight in log],
    }
    PAIRS.write(path, columns)
    return columns["id"]


LOGS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("123456789"), st.floats(0.1, 10)),
    min_size=2,
    max_size=30,
    unique_by=lambda pair: pair[:2],
)


@given(LOGS, st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_alike_where_the_log_says_so(tmp_path: Path, log: Log, data: st.DataObject) -> None:
    ids = _write(tmp_path / "train.parquet", log)
    # Rows are some of the pairs, and some of them several times.
    rows = data.draw(st.lists(st.sampled_from(range(len(log))), min_size=1, max_size=12))
    found = QueryLog.read(tmp_path / "train.parquet", [ids[row] for row in rows], weighted=True)
    assert found is not None
    batch = np.array(data.draw(st.permutations(range(len(rows)))))
    start = data.draw(st.integers(0, len(batch) - 1))
    own = slice(start, data.draw(st.integers(start + 1, len(batch))))
    clicked = {(query, image) for query, image, _ in log}
    for place, (one, mask) in enumerate(zip(batch[own], found.alike(batch, own).tolist(), strict=True)):
        query, image, _ = log[rows[one]]
        for column, (other, alike) in enumerate(zip(batch, mask, strict=True)):
            theirs = log[rows[other]]
            expected = (query, theirs[1]) in clicked or (theirs[0], image) in clicked
            assert alike == (expected and column != start + place)
    weights = np.array([log[row][2] for row in rows])[batch]
    read = found.weights_of(batch, own)
    assert read is not None
    np.testing.assert_allclose(read.numpy(), (weights / weights.mean())[own], rtol=1e-6)


LOG: Log = [("red bus", "1", 4.0), ("Red  Bus", "2", None), ("dog", "2", 1.0), ("cat", "3", 1.0)]


@pytest.mark.parametrize("weighted", [True, False])
def test_no_weight_counts_as_one_and_case_and_spaces_make_no_other_query(weighted: bool, tmp_path: Path) -> None:
    ids = _write(tmp_path / "train.parquet", LOG)
    found = QueryLog.read(tmp_path / "train.parquet", ids, weighted=weighted)
    assert found is not None
    assert (None if found.weights is None else found.weights.tolist()) == ([4, 1, 1, 1] if weighted else None)
    assert (found.weights_of(np.arange(4), slice(0, 4)) is None) != weighted
    # Image 2, here with "dog", was clicked for "red bus" too.
    alike = found.alike(np.array([0, 2, 3]), slice(0, 3))
    assert alike.tolist() == [[False, True, False], [True, False, False], [False] * 3]


def test_one_items_rows_are_alike_and_pairs_without_weights_are_no_log(tmp_path: Path) -> None:
    ids = ["a1", "a2", "b1", "c1"]
    columns = {"id": ids, "image_id": ids, "caption": ["Mug", "Mug, red", "Cup", "Mug"], "item": ["a", "a", "b", None]}
    PAIRS.write(tmp_path / "train.parquet", columns)
    found = QueryLog.read(tmp_path / "train.parquet", ids, weighted=True)
    assert found is not None
    assert found.weights is None
    alike = found.alike(np.arange(4), slice(0, 4)).tolist()
    # Equal captions are of one query, so c1 is right for the captions "Mug" too.
    assert alike == [[False, True, False, True], [True, False, False, True], [False] * 4, [True, True, False, False]]
    path = tmp_path / "train.parquet"
    ids = _write(path, [(query, image, None) for query, image, _ in LOG])
    assert not has_weights(path)
    assert QueryLog.read(path, ids, weighted=True) is None
    # An earlier version wrote tables without the column.
    pq.write_table(pq.read_table(path).drop_columns("weight"), path)
    assert not has_weights(path)
