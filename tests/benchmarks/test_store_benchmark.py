"""The benchmark of the store runs at a small size; speed is not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.store import measure, stores


def test_it_runs_at_a_small_size(tmp_path: Path) -> None:
    with stores("sqlite", tmp_path) as urls:
        found = measure(*urls, tmp_path, rows=700, group=64)
    assert found == json.loads(json.dumps(found))
    assert found["rows"] == 700
    assert found["export_rows_per_s"] > 0
    parts = sum(found[f"{name}_us_per_row"] for name in ("look_up", "add"))
    assert found["overhead_us_per_row"] == pytest.approx(parts)
    assert 0 < found["peak_rss_mb_after_a_tenth"] <= found["peak_rss_mb_after_filling"] <= found["peak_rss_mb"]
