"""The benchmark of the image index runs at a small size; speed is not tested."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.explorer import measure


def test_it_runs_at_a_small_size(tmp_path: Path) -> None:
    found = measure(tmp_path, rows=2000, dim=64, kind="ivf_pq")
    assert found == json.loads(json.dumps(found))
    for name in ("p95_ms_100k_exact", "p95_ms_1m", "build_vectors_per_second", "disk_gb_1m"):
        assert found[name] > 0
    assert found["recall_at_10_1m"] > 0.9
    assert 0.02 < found["memory_gb_1m"] < 2
    assert found["kind"] == "ivf_pq"
