"""COCO-PE's size: 25,000 queries, each with a paraphrase, before a gallery of 128,000 images; in its own process."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

DIM, K = 512, 10


def measure_gallery(images: int, queries: int) -> dict[str, float]:
    """Seconds and peak memory of AO@10, JS@10 and recall of synthetic embeddings, of a fresh process.

    Args:
        images: of the gallery.
        queries: each has a paraphrase.
    """
    command = [sys.executable, "-m", "benchmarks.evaluation_gallery", str(images), str(queries)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _run(images: int, queries: int) -> dict[str, Any]:
    from components.core.compute.metrics import average_overlap, gold_ranks, hit_at_k, jaccard_similarity, top_k

    generator = np.random.default_rng(0)
    gallery = _unit(generator.standard_normal((images, DIM), dtype=np.float32))
    gold = generator.integers(0, images, queries)
    first, second = (_near(gallery, gold, generator) for _ in range(2))
    started = time.perf_counter()
    tops = [top_k(features, gallery, K) for features in (first, second)]
    ranks = gold_ranks(second, gallery, gold)
    values = {
        "ao_at_10": float(average_overlap(*tops, K).mean()),
        "js_at_10": float(jaccard_similarity(*tops, K).mean()),
        "recall_at_10": float(hit_at_k(ranks, K).mean()),
    }
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"images": images, "queries": queries, "seconds": seconds, "peak_rss_mb": peak} | values


def _near(gallery: Any, gold: Any, generator: np.random.Generator) -> Any:
    noise = generator.standard_normal((len(gold), DIM), dtype=np.float32)
    return _unit(gallery[gold] + 0.12 * noise)


def _unit(rows: Any) -> Any:
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


if __name__ == "__main__":
    print(json.dumps(_run(int(sys.argv[1]), int(sys.argv[2]))))
