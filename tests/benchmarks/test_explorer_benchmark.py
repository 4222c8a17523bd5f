"""The benchmark of the image index does what it measures; how fast, no test can say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.explorer import World, measure


def test_it_runs_at_a_small_size(tmp_path: Path) -> None:
    found = measure(tmp_path, rows=2000, dim=64, kind="ivf_pq")
    assert found == json.loads(json.dumps(found))
    for name in ("p95_ms_100k_exact", "p95_ms_1m", "build_vectors_per_second", "disk_gb_1m"):
        assert found[name] > 0
    assert found["recall_at_10_1m"] > 0.9
    assert 0.02 < found["memory_gb_1m"] < 2
    assert found["kind"] == "ivf_pq"


def test_texts_and_images_are_in_two_cones() -> None:
    world = World.make(512)
    images, texts = world.images(0, 2000), world.embed_texts([str(number) for number in range(500)])
    between = images @ images.T
    assert 0.4 < between[np.triu_indices(2000, 1)].mean() < 0.6
    best = (texts @ images.T).max(axis=1)
    assert 0.2 < best.mean() < 0.5
    assert np.linalg.norm(images.mean(axis=0) - texts.mean(axis=0)) > 0.7
    spread = np.linalg.eigvalsh(np.cov(images.T))
    assert 20 < spread.sum() ** 2 / (spread**2).sum() < 80
    assert np.array_equal(world.images(0, 5), World.make(512).images(0, 5))
