"""The state of a run outlives the process, and what cannot go on is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.training.engine.run import State

TABLE, SHARDS = {"kind": "table"}, {"kind": "shards", "ranks": "2"}


@dataclass(frozen=True)
class Ranks(World):
    """A rank whose neighbours' values are `apart` larger each; it does not wait for other ranks."""

    apart: int = 0

    def everyones(self, value: int) -> list[int]:
        return [value + rank * self.apart for rank in range(self.size)]

    def wait(self) -> None:
        pass


def _state(
    folder: Path | None, world: World | None = None, batch_size: int = 8, source: dict[str, str] = TABLE, seed: int = 0
) -> tuple[State, dict[str, nn.Parameter], torch.optim.AdamW]:
    torch.manual_seed(seed)
    weights = {"a": nn.Parameter(torch.randn(3, 2)), "b": nn.Parameter(torch.randn(2))}
    optimiser = torch.optim.AdamW(weights.values(), lr=0.1, fused=True)
    checkpoints = Checkpoints(folder) if folder is not None else None
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    state = State(checkpoints, weights, optimiser, scaler, world or World(), batch_size, source)
    return state, weights, optimiser


def test_without_checkpoints_nothing_is_saved_or_resumed() -> None:
    state, _, _ = _state(None)
    state.advance(1)
    state.save()
    state.keep_if_best(1.0, larger=True)
    state.resume()
    assert (state.step, state.best) == (1, 1.0)


def test_another_global_batch_share_of_the_data_or_step_of_a_rank_is_refused(tmp_path: Path) -> None:
    _state(tmp_path / "batch")[0].save()
    with pytest.raises(InputError, match="step 0 has global batch 8, this run 16: keep the batch size"):
        _state(tmp_path / "batch", batch_size=16)[0].resume()
    _state(tmp_path / "share", source=SHARDS, world=Ranks(0, 2))[0].save()
    with pytest.raises(InputError, match=r"made by 2 ranks from another share .* use as many ranks"):
        _state(tmp_path / "share", source=SHARDS | {"ranks": "1"})[0].resume()
    with pytest.raises(InputError, match=r"different steps \(0 and 50\): make train.checkpoint_dir a folder that all"):
        _state(tmp_path / "batch", world=Ranks(0, 2, apart=50))[0].resume()


def test_each_rank_goes_on_from_its_own_cursor(tmp_path: Path) -> None:
    state, _, _ = _state(tmp_path, source=SHARDS, world=Ranks(0, 2, apart=100))
    state.advance(7)
    state.save()
    cursors = []
    for rank in range(2):
        again, _, _ = _state(tmp_path, source=SHARDS, world=Ranks(rank, 2))
        again.resume()
        cursors.append(again.cursor)
    assert cursors == [7, 107]


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_table_goes_on_with_another_number_of_ranks(ranks: int, tmp_path: Path) -> None:
    state, weights, _ = _state(tmp_path, world=Ranks(0, 2))
    state.advance(7)
    state.save()
    again, others, _ = _state(tmp_path, world=Ranks(ranks - 1, ranks), seed=3)
    again.resume()
    assert (again.step, again.cursor) == (1, 7)
    assert torch.equal(others["a"], weights["a"])


@pytest.mark.parametrize(("larger", "kept", "place"), [(True, 0.9, 2), (False, 0.1, 3)])
def test_the_first_of_the_best_weights_are_kept(larger: bool, kept: float, place: int, tmp_path: Path) -> None:
    state, weights, _ = _state(tmp_path)
    for number, value in enumerate((0.5, float("nan"), 0.9, 0.1, float("inf"), 0.9, 0.1)):
        with torch.no_grad():
            weights["b"].fill_(number)
        state.keep_if_best(value, larger=larger)
    assert state.best == kept
    best = Checkpoints(tmp_path).best()
    assert best is not None
    assert best.keys() == weights.keys()
    assert best["b"].tolist() == [place, place]
