"""CLIP4IDC's first stage: pairs of pictures and sentences about their difference learn to find each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from more_itertools import chunked
from torch import Tensor, nn

from components.benchmarks.captioning.examples import Examples
from components.benchmarks.captioning.learning import Course, learn
from components.benchmarks.captioning.modules import PairSeer
from components.core.metrics import Features, Indices
from components.methods.contract.features import Feature
from components.methods.contract.losses import info_nce

COURSE = Course("learn to retrieve differences", epochs=20, batch=128, lr=2e-3)
"""Epochs and batch are those of CLIP4IDC on Spot-the-Difference."""
_MAX_SCALE = 100.0
_BLOCK = 256


def _loss(seer: PairSeer, pairs: Tensor, texts: Tensor) -> Tensor:
    """CLIP4IDC's retrieval loss: symmetric InfoNCE of unit embeddings `[batch, dim]` whose rows belong together."""
    one, other = (Feature(rows, 0, len(rows)) for rows in (texts, pairs))
    return info_nce(one, other, seer.log_scale.exp().clamp(max=_MAX_SCALE))


def adapted(train: Examples, val: Examples, seed: int, device: str, course: Course) -> PairSeer:
    """A `PairSeer` that has learned from `train`, as it was when `val` had its lowest loss.

    Args:
        train, val: pairs, each with a sentence at least.
        seed: of order and sentences.
        device: where it learns.
        course: for how long.
    """
    seer = PairSeer(*train.before.shape[1:]).to(device)

    def loss(rows: Indices, sentences: Indices) -> Tensor:
        _, pairs = seer(*train.seen(rows, device))
        return _loss(seer, pairs, seer.texts(_tensor(train.features[sentences], device)))

    def validated() -> float:
        told = _tensor(val.features[val.one_each(None)], device)
        pairs = _tensor(pair_embeddings(seer, val, device), device)
        return float(_loss(seer, pairs, seer.texts(told)))

    learn(nn.ModuleList([seer]), course, train.before.shape[2], len(train), loss, train.one_each, validated, seed)
    return seer


def pair_embeddings(seer: PairSeer, pairs: Examples, device: str) -> Features:
    """Unit embeddings `[pairs, dim]`."""
    return _in_blocks(lambda rows: seer(*pairs.seen(rows, device))[1], len(pairs))


def text_embeddings(seer: PairSeer, features: Features, device: str) -> Features:
    """Unit embeddings `[texts, dim]` of the text tower's features `[texts, dim]`."""
    return _in_blocks(lambda rows: seer.texts(_tensor(features[rows], device)), len(features))


@torch.inference_mode()
def _in_blocks(embed: Callable[[Indices], Tensor], count: int) -> Features:
    blocks = [embed(np.array(rows)).cpu().numpy() for rows in chunked(range(count), _BLOCK)]
    return np.concatenate(blocks)


def _tensor(rows: Features, device: str) -> Tensor:
    return torch.from_numpy(np.array(rows)).to(device)
