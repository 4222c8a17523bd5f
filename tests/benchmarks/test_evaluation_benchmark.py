"""Both engines of the evaluation benchmark return the same values; speed is not tested."""

from __future__ import annotations

import json

import pytest

from benchmarks import evaluation_data
from benchmarks.evaluation import compare, measure
from benchmarks.evaluation_data import CAPTIONS_PER_IMAGE, CLASSES
from benchmarks.evaluation_engines import Timed
from benchmarks.evaluation_gallery import measure_gallery


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_both_commands_find_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    images = 12
    monkeypatch.setattr(evaluation_data, "TEMPLATES", evaluation_data.TEMPLATES[:1])
    found = measure("ViT-S-32-alt", images)
    assert found == json.loads(json.dumps(found))
    assert found["largest_difference"] < 1e-6
    assert found["images"] == 2 * images
    assert found["texts"] == images * CAPTIONS_PER_IMAGE + CLASSES
    assert min(found["seconds_clip_benchmark"], found["seconds_cliptune"]) > 0


def test_ratios_and_differences_by_hand() -> None:
    peer, cold, warm = Timed(90.0, {"top1": 0.5, "top5": 1.0}), Timed(30.0, {"top1": 0.25, "top5": 1.0}), Timed(9.0, {})
    found = compare(peer, cold, warm)
    assert found["speedup_vs_clip_benchmark"] == 3
    assert found["speedup_with_image_features_cached"] == 10
    assert found["largest_difference"] == 0.25


@pytest.mark.integration
def test_the_large_gallery_is_scored_in_a_process_of_its_own() -> None:
    found = measure_gallery(3000, 200)
    assert (found["images"], found["queries"]) == (3000, 200)
    assert found["peak_rss_mb"] > 10
    # Query and paraphrase are near the same image, which both find first.
    assert found["recall_at_10"] == 1
    assert 0.1 < found["ao_at_10"] < 1
