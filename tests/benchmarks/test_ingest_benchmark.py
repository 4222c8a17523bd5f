"""The benchmark of photographs runs at a small size; speed is not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.ingest import measure


def test_it_runs_at_a_small_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without Flickr8k, as on most machines.
    monkeypatch.setattr("benchmarks.ingest.FLICKR", tmp_path / "absent")
    found = measure(tmp_path, pictures=40, embedded=70, model="cliptune-tiny", rounds=1)
    assert found == json.loads(json.dumps(found))
    for name in ("prepare_images_per_second", "prepare_speedup_two_processes", "embed_share_of_tower"):
        assert found[name] > 0
    assert 0.05 < found["peak_memory_gb"] < 64
