"""How fast is this engine on a GPU, beside open_clip_train and beside the processor?

It needs torch, open_clip, pydantic and this working tree, nothing else: a GPU can often be had for minutes only. Both
sides train ViT-B/32's text tower from the same random weights in the same precision, on the same batch, which is
on the GPU already. The peer runs the locked image tower in every step, this engine once. Then pictures and texts are
embedded, searched and scored, on the GPU and on the processor of the same machine; then training and pictures again,
compiled. A part that fails is named, the others are printed all the same.

    python -m research.measure.gpu
    python -m research.measure.gpu --tiny --no-compile
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import open_clip
import torch
from torch import Tensor

from components.core.compute.devices import FeatureGallery, computing_on, fetched, in_batches, pick_precision
from components.core.compute.metrics import average_overlap, gold_ranks, in_blocks, rank_correlation, top_columns, top_k
from components.core.system.errors import InputError
from components.encoders.adapter.text_tower import encode_tokens
from components.training.engine.gradients import Towers
from research.measure.gpu_sides import Figures, Setup, train_ours, train_peer
from research.measure.record import Found, Options, run

OPTIONS: Options = {
    "model": ("ViT-B-32", "an open_clip model with a CLIP text tower"),
    "batch": (0, "rows of a batch; 0 is 1,024 on a GPU of 60 GB and more, else 256"),
    "precision": ("auto", "auto, bf16 or fp32"),
    "no_compile": (False, "leave the compiled parts out"),
    "tiny": (False, "a tiny model on the processor: does the command work?"),
}
TINY: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}
DEPTH, _AT_MOST_S = 10, 10.0
PEER, OURS = "open_clip_train", "cliptune"
Vectors = np.ndarray[Any, np.dtype[np.float32]]


def measure(model: str, batch: int, precision: str, no_compile: bool, tiny: bool) -> Found:
    """Every part's figures, their ratios, and why a part has none.

    Raises:
        InputError: there is no GPU, and `tiny` is not given, or the model is unknown.
    """
    setup = make_setup(model, batch, precision, tiny)
    found, failed = dict[str, Figures](), dict[str, str]()
    for name, part in parts(setup, not no_compile).items():
        try:
            found[name] = part()
        except Exception as error:
            # One command is all that there may be time for: finished parts must be printed.
            failed[name] = f"{type(error).__name__}: {error}"[:300]
        print(f"{name}: {found.get(name) or failed[name]}", flush=True)
        if setup.device == "cuda":
            torch.cuda.empty_cache()
    losses = [found.get(side, {}).get("first_step_loss") for side in (OURS, PEER)]
    return {
        "model": setup.name, "precision": setup.precision, "batch": setup.batch, "parts": found, "failed": failed,
        "first_step_loss_difference": abs(losses[0] - losses[1]) if losses[0] and losses[1] else None,
        "speedup_vs_open_clip_train": ratio(found, OURS, PEER),
        "speedup_vs_open_clip_train_compiled": ratio(found, f"{OURS}_compiled", f"{PEER}_compiled"),
        "ratio_to_cpu": {name: ratio(found, name, f"{name}_cpu") for name in INFERENCE},
    }  # fmt: skip


def make_setup(model: str, batch: int, precision: str, tiny: bool) -> Setup:
    """The model and the batch for this machine."""
    if tiny:
        return Setup.of("tiny", TINY, "cpu", "bf16" if precision == "auto" else precision, batch or 8, steps=2)
    if not torch.cuda.is_available():
        raise InputError("no GPU is visible: run this where `nvidia-smi` lists one, or give --tiny to try it without")
    config = open_clip.get_model_config(model)
    if config is None:
        raise InputError(f"--model '{model}' is not a model of open_clip")
    # With 60 GB the peer's batch of 1,024 texts of 77 tokens fits.
    batch = batch or (1024 if torch.cuda.get_device_properties(0).total_memory > 60e9 else 256)
    return Setup.of(model, config, "cuda", pick_precision(precision, "cuda"), batch)


def parts(setup: Setup, compile_too: bool) -> dict[str, Callable[[], Figures]]:
    """The parts in their order; a compiler may take minutes, so compiled ones are the last."""
    few = replace(
        setup, device="cpu", precision=pick_precision("auto", "cpu"), batch=min(32, setup.batch),
        pixels=setup.pixels[:32], steps=2,
    )  # fmt: skip
    plain: dict[str, Callable[..., Figures]] = {PEER: train_peer, OURS: train_ours}
    found: dict[str, Callable[[], Figures]] = {name: partial(part, setup) for name, part in plain.items()}
    for name, part in INFERENCE.items():
        found |= {name: partial(part, setup), f"{name}_cpu": partial(part, few)}
    compiled = {OURS: train_ours, "pictures": pictures, PEER: train_peer} if compile_too else {}
    return found | {f"{name}_compiled": partial(part, setup, compiled=True) for name, part in compiled.items()}


def ratio(found: dict[str, Figures], one: str, other: str) -> float | None:
    """How many times as fast `one` is as `other`; None where either has no rate."""
    rates = [found.get(name, {}).get("samples_per_second") for name in (one, other)]
    return rates[0] / rates[1] if rates[0] and rates[1] else None


def pictures(setup: Setup, *, compiled: bool = False) -> Figures:
    """The image tower on decoded pixels that come from pinned memory, batch after batch."""
    towers = Towers(setup.model().eval(), setup.device, setup.autocast, compiled)
    pixels = setup.pixels.pin_memory() if setup.device == "cuda" else setup.pixels

    def embed() -> None:
        towers(None, pixels.to(setup.device, non_blocking=True))
        setup.wait()

    with torch.no_grad():
        return _rate(setup, setup.batch, embed, 2 * setup.steps)


@torch.inference_mode()
def texts(setup: Setup) -> Figures:
    """The text tower on batches of texts of similar length, as many as fit into the free memory."""
    count, model = _size(setup, 32_768, 512), setup.model().eval()
    chosen = np.arange(count) % len(setup.tokens)
    order = chosen[np.argsort(setup.lengths[chosen], kind="stable")[::-1]]

    def features(batch: slice) -> Vectors:
        return fetched(encode_tokens(model, _tokens(setup, order[batch])))

    with torch.autocast(setup.device, setup.autocast, enabled=setup.autocast is not None):
        return _rate(setup, count, lambda: list(in_batches(count, None, "text", setup.device, features)))


def search(setup: Setup) -> Figures:
    """Exact search: the ten best of many vectors, which stay on the device, for each query."""
    gallery, queries = _unit(setup, _size(setup, 500_000, 500_000)), _unit(setup, _size(setup, 4_096, 64))
    placed = FeatureGallery(gallery, setup.device)

    def found() -> Vectors:
        return in_blocks(len(queries), placed, lambda rows: top_columns(placed.similarities(queries[rows]), DEPTH))

    return _rate(setup, len(queries), found)


def scoring(setup: Setup) -> Figures:
    """AO@10, recall and rank correlation of queries and their paraphrases among 5,000 pictures."""
    gallery, queries = _unit(setup, _size(setup, 5_000, 5_000)), _unit(setup, _size(setup, 25_000, 500))
    others, gold = queries + 0.1 * _unit(setup, len(queries)), np.arange(len(queries)) % len(gallery)

    def scored() -> None:
        with computing_on(setup.device):
            average_overlap(top_k(queries, gallery, DEPTH), top_k(others, gallery, DEPTH), DEPTH)
            gold_ranks(queries, gallery, gold)
            rank_correlation(queries, others, gallery)

    return _rate(setup, len(queries), scored)


@torch.inference_mode()
def one_query(setup: Setup) -> Figures:
    """The time from the tokens of one text to its vector in memory, as a server computes it."""
    model, spent, end = setup.model().eval(), list[float](), time.monotonic() + _AT_MOST_S
    with torch.autocast(setup.device, setup.autocast, enabled=setup.autocast is not None):
        while len(spent) < 200 and time.monotonic() < end:
            row, began = np.array([len(spent) % len(setup.tokens)]), time.perf_counter()
            fetched(encode_tokens(model, _tokens(setup, row)))
            spent.append(time.perf_counter() - began)
    middle, slow = np.percentile(spent[len(spent) // 10 :], (50, 99))
    return {"samples_per_second": float(1 / middle), "ms_median": 1e3 * float(middle), "ms_p99": 1e3 * float(slow)}


INFERENCE: dict[str, Callable[[Setup], Figures]] = {
    "pictures": pictures, "texts": texts, "search": search, "scoring": scoring, "one_query": one_query
}  # fmt: skip
"""Parts that are measured on the processor too."""


def _size(setup: Setup, large: int, small: int) -> int:
    return 256 if setup.name == "tiny" else large if setup.device == "cuda" else small


def _tokens(setup: Setup, rows: Any) -> Tensor:
    """As `components.encoders.adapter.tokens.trimmed`, whose module needs pyarrow."""
    return torch.from_numpy(setup.tokens[rows, : setup.lengths[rows].max()].astype(np.int64)).to(setup.device)


def _unit(setup: Setup, rows: int) -> Vectors:
    drawn = np.random.default_rng(rows).standard_normal((rows, setup.config["embed_dim"]), np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.float32)


def _rate(setup: Setup, rows: int, compute: Callable[[], object], passes: int = 5) -> Figures:
    """Rows per second; the first pass, which prepares the device, is not counted."""
    setup.wait(forget_peak=True)
    compute()
    started, done = setup.wait(), 0
    while not done or (done < passes and time.monotonic() < started + _AT_MOST_S):
        compute()
        done += 1
    return setup.figures(done * rows / (time.monotonic() - started))


def rows(found: Found) -> Iterator[Sequence[object]]:
    """The table: each part's rate on the device and on the processor, and why a part has none."""
    yield f"{found['model']}, batch {found['batch']}, {found['precision']}", "per second", "processor", "ratio"
    rates = {name: part["samples_per_second"] for name, part in found["parts"].items()}
    for name, rate in rates.items():
        if not name.endswith("_cpu"):
            yield name, rate, rates.get(f"{name}_cpu"), found["ratio_to_cpu"].get(name)
    for name, reason in found["failed"].items():
        yield name, reason, None, None


if __name__ == "__main__":
    run("gpu", __doc__, OPTIONS, measure, rows)
