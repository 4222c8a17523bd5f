"""The GPU benchmark beside training: texts, search, evaluation and one query, on a GPU or the processor.

Needs torch, open_clip and pydantic alone, as its other parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu_sides import Figures, Setup
from components.core.compute.devices import FeatureGallery, computing_on, fetched, in_batches
from components.core.compute.hardware import peak_memory, pick_autocast, pick_precision
from components.core.compute.metrics import (
    Features,
    average_overlap,
    gold_ranks,
    in_blocks,
    rank_correlation,
    top_columns,
    top_k,
)
from components.encoders.adapter.text_tower import encode_tokens

DEPTH = 10
_AT_MOST_S = 10.0
"""After which a part repeats nothing."""


def on_processor(setup: Setup) -> Setup:
    """The same measurement on the processor, with fewer pictures and steps, in the precision that it has."""
    few = {"batch": min(32, setup.batch), "pixels": setup.pixels[:32], "steps": 2, "warmup": 1}
    return replace(setup, device="cpu", precision=pick_precision("auto", "cpu"), **few)


def _size(setup: Setup, large: int, small: int) -> int:
    return 256 if setup.name == "tiny" else large if setup.device == "cuda" else small


@torch.inference_mode()
def texts(setup: Setup) -> Figures:
    """The text tower on batches of texts of similar length, as many as fit into the free memory."""
    count, model = _size(setup, 32_768, 512), setup.model().eval()
    chosen = np.arange(count) % len(setup.tokens)
    order = chosen[np.argsort(setup.lengths[chosen], kind="stable")[::-1]]
    autocast = pick_autocast(setup.precision, setup.device)

    def features(batch: slice) -> Features:
        return fetched(encode_tokens(model, _tokens(setup, order[batch])))

    with torch.autocast(setup.device, autocast, enabled=autocast is not None):
        features(slice(0, 8))
        return _rate(setup, count, lambda: list(in_batches(count, None, "text", setup.device, features)))


def search(setup: Setup) -> Figures:
    """Exact search: the ten best of many vectors, which stay on the device, for each query."""
    gallery, queries = _unit(setup, _size(setup, 500_000, 500_000)), _unit(setup, _size(setup, 4_096, 64))
    placed = FeatureGallery(gallery, setup.device)

    def found() -> Features:
        return in_blocks(len(queries), placed, lambda rows: top_columns(placed.similarities(queries[rows]), DEPTH))

    return _rate(setup, len(queries), found)


def evaluation(setup: Setup) -> Figures:
    """AO@10, recall and rank correlation of queries and their paraphrases among 5,000 pictures."""
    gallery, queries = _unit(setup, _size(setup, 5_000, 5_000)), _unit(setup, _size(setup, 25_000, 500))
    others, gold = queries + 0.1 * _unit(setup, len(queries)), np.arange(len(queries)) % len(gallery)

    def scored() -> None:
        with computing_on(setup.device):
            average_overlap(*(top_k(side, gallery, DEPTH) for side in (queries, others)), DEPTH)
            gold_ranks(queries, gallery, gold)
            rank_correlation(queries, others, gallery)

    return _rate(setup, len(queries), scored)


@torch.inference_mode()
def one_query(setup: Setup) -> Figures:
    """The time from the tokens of one text to its vector in memory, as a server computes it."""
    model, autocast, spent = setup.model().eval(), pick_autocast(setup.precision, setup.device), list[float]()
    started = time.monotonic()
    with torch.autocast(setup.device, autocast, enabled=autocast is not None):
        while len(spent) < 200 and time.monotonic() < started + _AT_MOST_S:
            row, began = [len(spent) % len(setup.tokens)], time.perf_counter()
            fetched(encode_tokens(model, _tokens(setup, row)))
            spent.append(time.perf_counter() - began)
    middle, slow = np.percentile(spent[len(spent) // 10 :], (50, 99))
    return {"samples_per_second": float(1 / middle), "ms_median": 1e3 * float(middle), "ms_p99": 1e3 * float(slow)}


def _tokens(setup: Setup, rows: Any) -> Tensor:
    """As `components.encoders.adapter.tokens.trimmed`, whose module needs pyarrow."""
    return torch.from_numpy(setup.tokens[rows, : setup.lengths[rows].max()].astype(np.int64)).to(setup.device)


def _unit(setup: Setup, rows: int) -> Features:
    drawn = np.random.default_rng(rows).standard_normal((rows, setup.config["embed_dim"]), np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.float32)


def _rate(setup: Setup, rows: int, compute: Callable[[], object]) -> Figures:
    """Rows per second; the first pass, which prepares the device, is not counted."""
    compute()
    started, passes = time.monotonic(), 0
    while not passes or (passes < 5 and time.monotonic() < started + _AT_MOST_S / 2):
        compute()
        passes += 1
    rate = passes * rows / (time.monotonic() - started)
    return {"samples_per_second": rate, "peak_memory_gb": peak_memory(setup.device) / 1e3}
