"""A query log's rows: what they weigh, and which are true of one another, against the log read pair by pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.core.records import PAIRS
from components.training.rows.query_log import QueryLog, has_weights

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
def test_rows_are_alike_where_the_log_has_the_one_query_with_the_other_image(
    tmp_path: Path, log: Log, data: st.DataObject
) -> None:
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
    told = found.weights_of(batch, own)
    assert told is not None
    np.testing.assert_allclose(told.numpy(), (weights / weights.mean())[own], rtol=1e-6)


LOG: Log = [("red bus", "1", 4.0), ("Red  Bus", "2", None), ("dog", "2", 1.0), ("cat", "3", 1.0)]


def test_no_weight_counts_as_one_and_case_and_spaces_make_no_other_query(tmp_path: Path) -> None:
    ids = _write(tmp_path / "train.parquet", LOG)
    found = QueryLog.read(tmp_path / "train.parquet", ids, weighted=True)
    assert found is not None
    assert found.weights is not None
    assert found.weights.tolist() == [4, 1, 1, 1]
    batch = np.array([0, 2, 3])
    # Image 2, here beside "dog", was clicked for "red bus" too.
    assert found.alike(batch, slice(0, 3)).tolist() == [[False, True, False], [True, False, False], [False] * 3]


def test_a_method_that_does_not_ask_gets_no_weights(tmp_path: Path) -> None:
    ids = _write(tmp_path / "train.parquet", LOG)
    found = QueryLog.read(tmp_path / "train.parquet", ids, weighted=False)
    assert found is not None
    assert found.weights_of(np.arange(4), slice(0, 4)) is None
    assert found.alike(np.arange(4), slice(0, 4)).any()


def test_pairs_without_any_weight_are_no_query_log(tmp_path: Path) -> None:
    ids = _write(tmp_path / "train.parquet", [(query, image, None) for query, image, _ in LOG])
    assert not has_weights(tmp_path / "train.parquet")
    assert QueryLog.read(tmp_path / "train.parquet", ids, weighted=True) is None


def test_a_heavy_tail_stays_finite(tmp_path: Path) -> None:
    ids = _write(tmp_path / "train.parquet", [("a", "1", 1e300), ("b", "2", 1e-300), ("c", "3", 1e300)])
    found = QueryLog.read(tmp_path / "train.parquet", ids, weighted=True)
    assert found is not None
    told = found.weights_of(np.arange(3), slice(0, 3))
    assert told is not None
    np.testing.assert_allclose(told.numpy(), [1.5, 0, 1.5])


def test_a_table_of_an_earlier_version_has_no_weights(tmp_path: Path) -> None:
    _write(tmp_path / "train.parquet", LOG)
    pq.write_table(pq.read_table(tmp_path / "train.parquet").drop_columns("weight"), tmp_path / "train.parquet")
    assert not has_weights(tmp_path / "train.parquet")
