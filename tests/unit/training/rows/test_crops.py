"""Random resized crops are a function of seed, epoch and sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from components.training.rows.batches import Sampler, TableSource
from components.training.rows.crops import Crops

SIZE, ROWS = 16, 8
RAMP = torch.arange(SIZE, dtype=torch.uint8).expand(3, SIZE, SIZE) * 10


def test_a_crop_keeps_the_share_that_it_must_and_is_resized() -> None:
    found = Crops(0.5, 0).of(RAMP.expand(200, 3, SIZE, SIZE), [str(row) for row in range(200)], 0)
    assert found.shape == (200, 3, SIZE, SIZE)
    assert found.dtype == torch.uint8
    # Columns of the ramp that are seen, of 16: the box is at least 3/4 as wide as high.
    seen = (found[:, 0, 0].amax(dim=1).int() - found[:, 0, 0].amin(dim=1).int()) / 10 + 1
    assert float(seen.min()) >= SIZE * (0.5 * 3 / 4) ** 0.5 - 2
    assert len(set(seen.tolist())) > 3


def _pixels(
    epoch: int, cursor: int = 0, rank: int = 0, ranks: int = 1, seed: int = 0
) -> list[tuple[str, torch.Tensor]]:
    source = TableSource(
        sampler=Sampler(np.arange(ROWS), 4, 0),
        names=[str(row) for row in range(ROWS)],
        tokens={},
        lengths={},
        images={"image": np.arange(ROWS)},
        features=None,
        pixels=RAMP.expand(ROWS, 3, SIZE, SIZE),
        wanted=frozenset({"image", "neighbour.image"}),
        neighbours=np.roll(np.arange(ROWS), 1)[:, None],
        crops=Crops(0.5, seed),
        rank=rank,
        ranks=ranks,
    )
    batches = [replace(batch) for batch in source.epoch(epoch, cursor)]
    own = [(name, row) for batch in batches for name, row in zip(batch.ids, batch.pixels["image"], strict=True)]
    near = [
        (str((int(name) - 1) % ROWS), row)
        for batch in batches
        for name, row in zip(batch.ids, batch.pixels["neighbour.image"], strict=True)
    ]
    return own + near


def test_an_image_has_one_crop_an_epoch_wherever_it_is_and_whoever_has_it() -> None:
    whole = dict(_pixels(0))
    assert len(whole) == ROWS
    for found in (_pixels(0), _pixels(0, cursor=1), _pixels(0, rank=0, ranks=2), _pixels(0, rank=1, ranks=2)):
        assert all(torch.equal(whole[name], pixels) for name, pixels in found)
    for other in (dict(_pixels(1)), dict(_pixels(0, seed=1))):
        assert any(not torch.equal(whole[name], other[name]) for name in whole)
