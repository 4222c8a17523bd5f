"""The few metrics that short tables and MLflow's runs show, chosen from what was measured."""

from __future__ import annotations

from components.benchmarks.embedded import find_benchmark
from components.benchmarks.scoring.benchmark import key_metrics, tracked_metrics
from components.core.settings import load_settings

PAIRED = [find_benchmark("paraphrased_retrieval")]


def test_the_depth_nearest_to_the_declared_one_is_shown() -> None:
    measured = [f"paraphrased_retrieval/{name}_at_{k}" for name in ("ao", "js") for k in (1, 8, 50)]
    assert key_metrics(PAIRED, measured) == ["paraphrased_retrieval/ao_at_8", "paraphrased_retrieval/js_at_8"]


def test_what_was_not_measured_is_left_out() -> None:
    assert key_metrics(PAIRED, ["zero_shot/top1"]) == []


def test_runs_get_the_key_metrics_and_what_has_neither_depth_nor_group() -> None:
    measured = [
        "paraphrased_retrieval/ao_at_1",
        "paraphrased_retrieval/ao_at_10",
        "paraphrased_retrieval/tier_rare/ao_at_10",
        "zero_shot/top5",
    ]
    assert tracked_metrics(PAIRED, measured) == ["paraphrased_retrieval/ao_at_10", "zero_shot/top5"]


def test_synthetic_scenes_have_nineteen_key_metrics() -> None:
    declared = [name for one in load_settings().evaluate.benchmarks for name in find_benchmark(one).key_metrics]
    assert key_metrics(map(find_benchmark, load_settings().evaluate.benchmarks), declared) == declared
    assert len(declared) == 19
