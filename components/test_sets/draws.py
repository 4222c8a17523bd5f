"""Random splits and draws exactly as the papers' released code makes them."""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import Indices


def drawn(items: int, count: int, seed: int) -> Indices:
    """`count` of `items` numbers without repetition, or all if there are fewer, in the order drawn.

    PC-CLIP's released code uses the same generator, so the draw is the published one.
    """
    import torch

    order = torch.randperm(items, generator=torch.Generator().manual_seed(seed))
    return np.asarray(order[:count].numpy(), dtype=np.int64)


def released_splits(rows: int, seed: int = 42, share: float = 0.1) -> dict[str, Indices]:
    """Shuffled row numbers of SemCLIP's `train`, `val` and `test`: the last share tests, the one before validates.

    The paper names a random tenth; the shuffle, as pandas' `sample` makes it, and its seed are the released code's
    (src/dataset.py). Rows are split, not images, so an image with several rows may be trained on and tested.
    """
    shuffled = np.random.RandomState(seed).permutation(rows).astype(np.int64)
    part = int(rows * share)
    return {
        "train": shuffled[: rows - 2 * part],
        "val": shuffled[rows - 2 * part : rows - part],
        "test": shuffled[rows - part :],
    }


def released_test_rows(rows: int) -> Indices:
    """The `test` rows of `released_splits`."""
    return released_splits(rows)["test"]
