"""A table comes out the same however it is cut into shards, and memory holds one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

GOOD_1 = "A small dog sits left of a large cat, red background."
SAME_1 = "a small DOG sits left of a large cat - red background"
OTHER_1 = "On red, one small dog waits left of a large cat."
TEXTS = [GOOD_1, SAME_1, OTHER_1, "dog cat", "Sure! " + GOOD_1, None]


def _written(outcome: Any) -> tuple[Any, ...]:
    """Everything that must not depend on the shards; the tables byte by byte."""
    tables = [path.read_bytes() for path in sorted(outcome.files.project.glob("data/validated/**/*.parquet"))]
    tables += [path.read_bytes() for path in sorted(outcome.files.quarantine.rglob("*.parquet"))]
    assert len(tables) == 2
    outcome.summary.pop("shards")
    return outcome.accepted, outcome.quarantine, outcome.summary, tables


@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(TEXTS)), min_size=4, max_size=8),
    size=st.integers(2, 3),
)
def test_results_do_not_depend_on_the_shards(
    stage: Any, answer: Any, rows: list[tuple[int, str | None]], size: int
) -> None:
    answers = [
        answer(pair=pair, sample=sample, text_1=text, reason_1=None if text else "failed", found_2=text is not None)
        for sample, (pair, text) in enumerate(rows)
    ]
    assert _written(stage(answers, shard_rows=size)) == _written(stage(answers, shard_rows=1000))


def test_samples_far_apart_are_duplicates_all_the_same(stage: Any, answer: Any) -> None:
    between = [answer(pair=pair) for pair in range(1, 5)]
    outcome = stage([answer(), *between, answer(sample=1, text_1=SAME_1)], shard_rows=2)
    assert [(row["id"], row["sample"], row["reason"]) for row in outcome.quarantine] == [
        ("pair0", 1, "duplicate:sample")
    ]
    assert outcome.summary["shards"] == 3


def test_a_pair_whose_samples_follow_each_other_stays_in_one_shard(
    inputs: Any, answer: Any, joined_in: Callable[[Any], Any]
) -> None:
    pairs = [0, 0, 0, 1, 2, 2, 3]
    files = inputs([answer(pair=pair, sample=sample) for sample, pair in enumerate(pairs)])
    with joined_in(files) as joined:
        shards = [shard["id"].tolist() for shard in joined.shards(2)]
        assert [identity for shard in shards for identity in shard] == [f"pair{pair}" for pair in pairs]
        assert shards == [["pair0"] * 3, ["pair1"], ["pair2"] * 2 + ["pair3"]]
        assert [shard["row"].tolist() for shard in joined.shards(100)] == [list(range(7))]
        assert all((shard.index == shard["row"]).all() for shard in joined.shards(2))


def test_limits_hold_for_the_whole_table(stage: Any, answer: Any) -> None:
    answers = [answer(pair=pair, text_1=GOOD_1 if pair < 2 else "dog cat") for pair in range(4)]
    outcome = stage(answers, shard_rows=2, min_accepted_share=0.5)
    assert outcome.summary["passed"] is True
    accepted = next(entry for entry in outcome.summary["expectations"] if entry["column"] == "accepted")
    assert accepted["observed"] == 0.5
    words = next(entry for entry in outcome.summary["expectations"] if entry["column"] == "words_1")
    assert (words["failing_rows"], words["success"]) == (2, False)


def test_nothing_appears_when_the_stage_breaks_off(stage: Any, answer: Any, tmp_path: Path, monkeypatch: Any) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr("components.validation.reporting.quality.Quality.add", fail)
    with pytest.raises(RuntimeError, match="lost"):
        stage([answer(), answer(pair=1)], shard_rows=1)
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []
    assert list((tmp_path / "quarantine" / "paraphrases").iterdir()) == []
