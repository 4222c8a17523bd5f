"""States of texts below the first trained block, computed once per text and kept in memory for the run.

Frozen blocks without dropout give a text the same states in every step. They are kept as computed, in float32, so that
gradients are those of a run without them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from components.encoders.adapter.text_tower import Below, frozen_depth

if TYPE_CHECKING:
    from components.training.engine.gradients import MicroBatch, Towers

_MEMORY_SHARE = 0.25
"""Of the memory that is available at the start, over all ranks of a machine."""


class FrozenStates:
    """Keeps the states of distinct texts until `size` bytes are used; those of other texts are computed at each use.

    Args:
        towers: compute the states.
        depth: number of frozen blocks below the first trained one.
    """

    def __init__(self, towers: Towers, depth: int, size: int) -> None:
        self._towers, self._depth, self._left = towers, depth, size
        self._kept: dict[bytes, Tensor] = {}

    @staticmethod
    def of(towers: Towers, title: str, leads: bool = True) -> FrozenStates | None:
        """For a run, whose leading rank prints their space; None if no block is frozen below all trained ones."""
        depth = frozen_depth(towers.model)
        if depth == 0:
            return None
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        # Only this case needs psutil, which torch does not bring: the GPU benchmark runs without it.
        import psutil

        size = int(_MEMORY_SHARE * psutil.virtual_memory().available / ranks)
        if leads:
            print(
                f"{title}: the text tower's {depth} lowest blocks are frozen and run once per text; their results stay "
                f"in memory, up to {size / 1e9:.1f} GB on each rank"
            )
        return FrozenStates(towers, depth, size)

    @torch.no_grad()
    def below(self, piece: MicroBatch, device: str) -> Below | None:
        """The states of a piece's texts on `device`; None without texts."""
        if piece.texts is None:
            return None
        ids = piece.texts.numpy().astype(np.int32)
        keys = [row[:length].tobytes() for row, length in zip(ids, piece.lengths, strict=True)]
        fresh = {key: row for row, key in enumerate(keys) if key not in self._kept}
        computed: dict[bytes, Tensor] = {}
        if fresh:
            rows = list(fresh.values())
            lengths = piece.lengths[rows]
            texts = piece.texts[rows, : int(lengths.max())].to(device)
            states = self._towers.states_below(texts, self._depth).float().cpu()
            computed = {key: own[:length] for key, own, length in zip(fresh, states, lengths, strict=True)}
            for key, own in computed.items():
                if own.nbytes <= self._left:
                    self._left -= own.nbytes
                    # A copy, because a view would keep the padding of its batch.
                    self._kept[key] = own.clone()
        found = [computed[key] if key in computed else self._kept[key] for key in keys]
        return Below(self._depth, pad_sequence(found, batch_first=True).to(device))
