"""Rows joined from the tables that hold a method's columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.errors import InputError
from components.core.records import DIFFERENCES, NEGATIONS, PAIRS, PARAPHRASES
from components.training.rows.examples import Columns, input_files, join_rows


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


def test_a_neighbours_columns_are_the_rows_own(pairs: Path, tmp_path: Path) -> None:
    _negations(tmp_path, ("a", 0))
    wanted = {"image", "neighbour.image", "neighbour.negation"}
    assert list(join_rows(wanted, tmp_path, pairs).columns) == ["id", "caption", "negation"]
    assert Columns.of(wanted) == Columns(("negation",), ("image",), ("image", "negation"))


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
