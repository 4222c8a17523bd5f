"""The synthetic dataset's benchmark tables: the same for the same seed, of test pictures only, writable at any size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.tables.records import COMPARISONS, NEGATION_QUERIES
from components.data import prepare
from components.data.source import EvaluationTables, Pair
from components.data.sources.synthetic import SOURCE
from components.data.world.evaluation_text import CUES
from components.data.world.lexicon import TIERS


def _made(raw_params: dict[str, Any], test: int, seed: int = 0) -> tuple[list[Pair], EvaluationTables]:
    raw_params["prepare"]["counts"] = {"train": 1, "val": 1, "test": test}
    raw_params["dataset"]["seed"] = seed
    settings = Settings.model_validate(raw_params)
    tests = [pair for pair in SOURCE.pairs(settings) if pair.split == "test"]
    return tests, SOURCE.evaluation(settings, tests)


def test_tables_depend_on_the_seed_and_are_of_test_pictures(raw_params: dict[str, Any]) -> None:
    (tests, tables), (_, again), (_, other) = (_made(raw_params, 40, seed) for seed in (0, 0, 1))
    for name in tables:
        assert tables[name][1].equals(again[name][1]), name
        assert not tables[name][1].equals(other[name][1]), name
    ids = [pair.image_id for pair in tests]
    assert tables["negations"][1]["image_id"].to_pylist() == ids
    compared = tables["comparisons"][1].select(["first_id", "second_id"]).to_pylist()
    assert all(row["first_id"] != row["second_id"] and set(row.values()) <= set(ids) for row in compared)


def test_every_cue_meets_every_tier(raw_params: dict[str, Any]) -> None:
    """A paraphrase's tier is that of its hardest word, so a wanted tier is not always reached."""
    rows = _made(raw_params, 160)[1]["negations"][1].to_pylist()
    counts = Counter((row["cue"], row["tier"]) for row in rows)
    assert set(counts) == {(cue, tier) for cue in CUES for tier in TIERS}


@pytest.mark.parametrize("test", [1, 2])
def test_a_few_pictures_are_enough_to_prepare(raw_params: dict[str, Any], tmp_path: Path, test: int) -> None:
    raw_params["prepare"]["counts"] = {"train": 1, "val": 1, "test": test}
    prepare.run(Settings.model_validate(raw_params), tmp_path / "pairs", tmp_path / "evaluation")
    assert NEGATION_QUERIES.read(tmp_path / "evaluation" / "negations.parquet").num_rows == test
    rows = COMPARISONS.read(tmp_path / "evaluation" / "comparisons.parquet").num_rows
    assert test > 1 or rows == 0
