"""The embedded world's benchmark tables: the same for the same seed, of test pictures only, writable at any size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.records import COMPARISONS, NEGATION_QUERIES, PAIRS
from components.core.settings import Settings
from components.data import prepare
from components.data.source import EvaluationTables, Pair
from components.data.sources import embedded
from components.data.sources.embedded import SOURCE
from components.data.world.description.lexicon import TIERS
from components.data.world.description.negation_text import CUES
from components.data.world.description.scenes import Scene, Thing


def _made(raw_params: dict[str, Any], test: int, seed: int = 0) -> tuple[list[Pair], EvaluationTables]:
    raw_params["prepare"]["counts"] = {"train": 1, "val": 1, "test": test}
    raw_params["world"]["seed"] = seed
    settings = Settings.model_validate(raw_params)
    tests = [pair for pair in SOURCE.pairs(settings) if pair.split == "test"]
    return tests, SOURCE.evaluation(settings, tests)


def test_the_same_seed_gives_the_same_tables(raw_params: dict[str, Any]) -> None:
    tables = [_made(raw_params, 40, seed)[1] for seed in (0, 0, 1)]
    for name in tables[0]:
        assert tables[0][name][1].equals(tables[1][name][1]), name
        assert not tables[0][name][1].equals(tables[2][name][1]), name


def test_rows_are_of_test_pictures(raw_params: dict[str, Any]) -> None:
    tests, tables = _made(raw_params, 40)
    ids = [pair.image_id for pair in tests]
    assert tables["negations"][1]["image_id"].to_pylist() == ids
    compared = tables["comparisons"][1]
    for first, second in zip(compared["first_id"].to_pylist(), compared["second_id"].to_pylist(), strict=True):
        assert {first, second} <= set(ids)
        assert first != second


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


def test_twins_show_no_test_scene_and_change_nothing_else(raw_params: dict[str, Any], tmp_path: Path) -> None:
    raw_params["prepare"] |= {"counts": {"train": 60, "val": 5, "test": 40}, "twins": True}
    twinned = list(SOURCE.pairs(Settings.model_validate(raw_params)))
    raw_params["prepare"]["twins"] = False
    plain = list(SOURCE.pairs(Settings.model_validate(raw_params)))
    assert [(pair.id, pair.facts) for pair in twinned] == [(pair.id, pair.facts) for pair in plain]
    assert not any(pair.twin for pair in plain)
    assert not any(pair.twin for pair in twinned if pair.split != "train")
    held_out = {Scene.from_json(pair.facts or "").canonical() for pair in plain if pair.split != "train"}
    twins = [pair.twin for pair in twinned if pair.twin is not None]
    assert len(twins) > 50
    assert not held_out & {Scene.from_json(twin.facts or "").canonical() for twin in twins}


def test_a_twin_of_a_test_scene_is_left_out(raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("group", "red", Thing("cat", "small"), count="two")
    made = [("test", replace(scene, count="three")), ("val", replace(scene, count="four")), ("train", scene)]
    monkeypatch.setattr(embedded, "draw_scenes", lambda _seed, _counts: iter(made))
    raw_params["prepare"]["twins"] = True
    assert [pair.twin for pair in SOURCE.pairs(Settings.model_validate(raw_params))] == [None] * 3


def test_twins_are_written_behind_their_pairs(raw_params: dict[str, Any], tmp_path: Path) -> None:
    raw_params["prepare"] |= {"counts": {"train": 30, "val": 1, "test": 2}, "twins": True}
    prepare.run(Settings.model_validate(raw_params), tmp_path / "pairs", tmp_path / "evaluation")
    train = PAIRS.read(tmp_path / "pairs" / "train.parquet", ["id"])["id"].to_pylist()
    twins = PAIRS.read(tmp_path / "pairs" / "twins.parquet", ["id", "image_id"])
    assert twins["id"].to_pylist()[::2] == train
    assert not set(twins["id"].to_pylist()[1::2]) & set(train)
    raw_params["prepare"]["twins"] = False
    prepare.run(Settings.model_validate(raw_params), tmp_path / "pairs", tmp_path / "evaluation")
    assert not (tmp_path / "pairs" / "twins.parquet").exists()
