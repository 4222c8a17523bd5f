"""Both servers return the same vectors; speed is not tested."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.serving import compare, measure, registry
from benchmarks.serving_client import Outcome

KNOWN = {"a": np.array([0.6, 0.8], np.float32), "b": np.array([1, 0], np.float32)}
OURS = Outcome(2.0, {"200": 20}, 0, [1.0, 2.0, 3.0], [("a", [0.6, 0.8]), ("b", [1.0, 0.001])])
MLFLOW = Outcome(2.0, {"200": 4, "500": 1}, 2, [10.0], [("a", [0.6, 0.8])])


@pytest.mark.integration
@pytest.mark.timeout(1200)
def test_both_servers_answer_the_same_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    with registry(tmp_path):
        found = measure(tmp_path, clients=4, seconds=1.0, rounds=1, texts=50)
    assert found == json.loads(json.dumps(found))
    assert min(found["requests_per_second"], found["requests_per_second_mlflow"], found["overload_answered"]) > 0
    assert all(found[name] < 1e-5 for name in found if "largest_difference" in name)
    assert found["not_answered"] == found["not_answered_mlflow"] == found["overload_other"] == 0
    assert found["overload_alive"]
    rows = found["precisions"]
    assert list(rows) == ["fp32", "bf16", "int8"]
    assert rows["fp32"]["cosine_least"] > 0.999999 > rows["bf16"]["cosine_mean"] > rows["int8"]["cosine_mean"] > 0.99
    assert rows["fp32"]["top_ten_overlap"] == 1
    assert all(row["requests_per_second"] > 0 and row["not_answered"] == 0 for row in rows.values())


def test_figures_are_medians_of_right_answers() -> None:
    slow = Outcome(2.0, {"200": 8}, 0, [4.0], [("a", [0.6, 0.8])])
    found = compare([(OURS, MLFLOW), (slow, MLFLOW), (slow, MLFLOW)], KNOWN)
    assert (found["requests_per_second"], found["requests_per_second_mlflow"], found["p95_ms"]) == (4, 2, 4)
    assert found["speedup_vs_mlflow_serve"] == 2
    assert found["largest_difference"] == pytest.approx(0.001)
    assert found["largest_difference_mlflow"] == pytest.approx(0, abs=1e-6)
    assert (found["not_answered"], found["not_answered_mlflow"]) == (0, 9)
