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
from components.core.tables.records import DIFFERENCES, NEGATIONS, PAIRS, PARAPHRASES
from components.training.rows.tables import QueryLog, has_weights, input_files, join_rows


def _paraphrases(folder: Path, *samples: tuple[str, int]) -> None:
    columns = {
        "id": [pair for pair, _ in samples],
        "sample": [sample for _, sample in samples],
        "caption": [f"{pair} caption" for pair, _ in samples],
        "paraphrase_1": [f"{pair} x' {sample}" for pair, sample in samples],
        "paraphrase_2": [f"{pair} x'' {sample}" for pair, sample in samples],
        "similarity_1": [0.5] * len(samples),
        "similarity_2": [0.5] * len(samples),
    }
    PARAPHRASES.write(folder / "paraphrases.parquet", {name: list(values) for name, values in columns.items()})


def _negations(folder: Path, *samples: tuple[str, int]) -> None:
    columns = {
        "id": [pair for pair, _ in samples],
        "sample": [sample for _, sample in samples],
        "caption": [f"{pair} caption" for pair, _ in samples],
        "negation": [f"{pair} not {sample}" for pair, sample in samples],
        "similarity": [0.5] * len(samples),
        "verdict": [None] * len(samples),
        "written_by": [None] * len(samples),
    }
    NEGATIONS.write(folder / "negations.parquet", {name: list(values) for name, values in columns.items()})


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    ids = ["a", "b", "c"]
    captions = [f"{pair} alt" for pair in ids]
    columns = {"id": ids, "image_id": ids, "image": [b"i"] * 3, "caption": captions, "facts": [None] * 3}
    PAIRS.write(tmp_path / "train.parquet", {name: list(values) for name, values in columns.items()})
    return tmp_path / "train.parquet"


def test_captions_alone_come_from_the_pairs(pairs: Path, tmp_path: Path) -> None:
    rows = join_rows({"image", "caption"}, tmp_path, pairs)
    assert rows.to_dict("list") == {"id": ["a", "b", "c"], "caption": ["a alt", "b alt", "c alt"]}
    assert input_files({"image", "caption"}, tmp_path, pairs) == {"pairs": pairs}


def test_a_row_is_in_every_table_and_samples_are_combined(pairs: Path, tmp_path: Path) -> None:
    _paraphrases(tmp_path, ("a", 0), ("a", 1), ("b", 0))
    _negations(tmp_path, ("a", 0), ("a", 1), ("c", 0))
    wanted = {"image", "caption", "paraphrase_1", "negation"}
    rows = join_rows(wanted, tmp_path, pairs)
    assert list(rows.columns) == ["id", "caption", "paraphrase_1", "negation"]
    assert sorted(rows.itertuples(index=False, name=None)) == [
        ("a", "a caption", f"a x' {one}", f"a not {other}") for one in (0, 1) for other in (0, 1)
    ]
    assert input_files(wanted, tmp_path, pairs) == {
        "paraphrases": tmp_path / "paraphrases.parquet",
        "negations": tmp_path / "negations.parquet",
    }


def test_another_image_is_known_by_its_id(pairs: Path, tmp_path: Path) -> None:
    columns = {
        "id": ["a"], "other_id": ["b"], "sample": [0], "caption": ["x"], "other_caption": ["y"], "difference": ["z"],
        "similarity": [0.1],
    }  # fmt: skip
    DIFFERENCES.write(tmp_path / "differences.parquet", {name: list(values) for name, values in columns.items()})
    rows = join_rows({"image", "other_image", "difference"}, tmp_path, pairs)
    assert rows.to_dict("records") == [{"id": "a", "caption": "x", "difference": "z", "other_id": "b"}]


def test_an_unknown_column_is_named(pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="no training table has the column 'paraphrase_3': known are absence, caption, "
    ):
        join_rows({"caption", "paraphrase_3"}, tmp_path, pairs)


def test_a_missing_table_is_named(pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"negations\.parquet is missing: run `dvc repro`"):
        join_rows({"negation"}, tmp_path, pairs)


def test_tables_without_a_common_pair_are_named(pairs: Path, tmp_path: Path) -> None:
    _paraphrases(tmp_path, ("a", 0))
    _negations(tmp_path, ("b", 0))
    with pytest.raises(InputError, match=r"no pair is in all of .*paraphrases\.parquet, .*negations\.parquet: raise"):
        join_rows({"paraphrase_1", "negation"}, tmp_path, pairs)


def test_a_table_of_the_same_columns_is_read_in_anothers_place_where_its_file_is_named(
    pairs: Path, tmp_path: Path
) -> None:
    wanted = {"image", "other_image", "difference"}
    for name, text in (("differences", "of things"), ("differences_cub", "of birds")):
        columns = {"id": ["a"], "other_id": ["b"], "sample": [0], "caption": ["x"], "other_caption": ["y"]}
        DIFFERENCES.write(tmp_path / f"{name}.parquet", columns | {"difference": [text], "similarity": [0.5]})
    birds = tmp_path / "differences_cub.parquet"
    assert join_rows(wanted, birds, pairs)["difference"].tolist() == ["of birds"]
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


def test_a_table_of_an_earlier_version_has_no_weights(tmp_path: Path) -> None:
    _write(tmp_path / "train.parquet", LOG)
    pq.write_table(pq.read_table(tmp_path / "train.parquet").drop_columns("weight"), tmp_path / "train.parquet")
    assert not has_weights(tmp_path / "train.parquet")
