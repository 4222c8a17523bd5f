"""The synthetic data set: its texts are those of the seed, of test pictures only, and writable at any size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.tables.files import content_hash
from components.core.tables.records import COMPARISONS, NEGATION_QUERIES
from components.data import prepare
from components.data.sources.synthetic import SOURCE

HASHES = {
    "pairs": "71fadc42da884892",
    "paraphrase_queries": "0c003a3b221789b0",
    "caption_queries": "b1a330edf098fc04",
    "swaps": "d5e773604e52cf1e",
    "labels": "018530556d309b0d",
    "negations": "4f7e81e32759ab70",
    "comparisons": "8ba56bc1a00b31c8",
    "half_truths": "b0d3772a8dcd78f8",
    "text_pairs": "b4e07dc887b2dd10",
}


def test_texts_are_those_of_the_seed_and_never_change(raw_params: dict[str, Any]) -> None:
    """Other texts would train all encoders of the synthetic data set anew, and change every figure about them."""
    raw_params["prepare"] |= {"counts": {"train": 200, "val": 20, "test": 200}, "rare_word_share": 0.04}
    raw_params["dataset"]["seed"] = 0
    settings = Settings.model_validate(raw_params)
    pairs = list(SOURCE.pairs(settings))
    tests = [pair for pair in pairs if pair.split == "test"]
    # Ids are hashes of drawings, whose compression is that of a library.
    numbers = {pair.image_id: number for number, pair in enumerate(tests)}
    made: dict[str, list[Any]] = {"pairs": [(pair.split, pair.caption, pair.facts) for pair in pairs]}
    for name, (_, rows) in SOURCE.evaluation(settings, tests).items():
        made[name] = [[numbers.get(value, value) for value in row.values()] for row in rows.to_pylist()]
    assert [row[0] for row in made["negations"]] == list(range(len(tests)))
    assert {name: content_hash(json.dumps(rows))[:16] for name, rows in made.items()} == HASHES


@pytest.mark.parametrize("test", [1, 2])
def test_a_few_pictures_are_enough_to_prepare(raw_params: dict[str, Any], tmp_path: Path, test: int) -> None:
    raw_params["prepare"]["counts"] = {"train": 1, "val": 1, "test": test}
    prepare.run(Settings.model_validate(raw_params), tmp_path / "pairs", tmp_path / "evaluation")
    assert NEGATION_QUERIES.read(tmp_path / "evaluation" / "negations.parquet").num_rows == test
    rows = COMPARISONS.read(tmp_path / "evaluation" / "comparisons.parquet").num_rows
    assert test > 1 or rows == 0
