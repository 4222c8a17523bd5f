"""The few metrics that short tables and MLflow's runs show, chosen from what was measured."""

from __future__ import annotations

from components.benchmarks.embedded import find_benchmark
from components.benchmarks.scoring.benchmark import key_metrics, tracked_metrics
from components.core.settings import load_settings

PAIRED = [find_benchmark("paraphrased_retrieval")]


def test_key_metrics_are_those_measured_at_the_depth_nearest_to_the_declared_one() -> None:
    measured = [f"paraphrased_retrieval/{name}_at_{k}" for name in ("ao", "js") for k in (1, 8, 50)]
    assert key_metrics(PAIRED, measured) == ["paraphrased_retrieval/ao_at_8", "paraphrased_retrieval/js_at_8"]
    assert key_metrics(PAIRED, ["zero_shot/top1"]) == []


def test_runs_get_key_metrics_and_those_without_depth_or_group() -> None:
    paired = [f"paraphrased_retrieval/{name}" for name in ("ao_at_1", "ao_at_10", "tier_rare/ao_at_10")]
    assert tracked_metrics(PAIRED, [*paired, "zero_shot/top5"]) == [paired[1], "zero_shot/top5"]


def test_synthetic_scenes_have_nineteen_key_metrics() -> None:
    declared = [name for one in load_settings().evaluate.benchmarks for name in find_benchmark(one).key_metrics]
    assert key_metrics(map(find_benchmark, load_settings().evaluate.benchmarks), declared) == declared
    assert len(declared) == 19
