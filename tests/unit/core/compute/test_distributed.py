"""Without torchrun there is one rank, and every exchange is the identity."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.core.compute.distributed import World, join_world
from components.core.system.errors import InputError


def test_a_single_rank_leads_and_exchanges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [World(rank, 3).leads for rank in range(3)] == [True, False, False]
    for name in ("LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with join_world("cpu") as (world, device):
        assert (world, device, world.leads) == (World(0, 1), "cpu", True)
        rows = torch.randn(2, 3, 4)
        assert torch.equal(world.gather(rows), rows)
        assert torch.equal(world.own_gradient(rows), rows)
        kept = rows.clone()
        world.average([rows])
        assert torch.equal(rows, kept)
        assert world.everyones(7) == [7]
        world.wait()


@given(st.integers(1, 64), st.integers(1, 8))
def test_ranks_share_a_batch_evenly_or_not_at_all(batch_size: int, ranks: int) -> None:
    if batch_size % ranks == 0:
        assert World(0, ranks).share(batch_size) * ranks == batch_size
    else:
        with pytest.raises(InputError, match=f"batch_size {batch_size} cannot be shared by {ranks} ranks"):
            World(0, ranks).share(batch_size)
