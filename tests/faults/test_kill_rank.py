"""One of two ranks killed with SIGKILL: torchrun ends, and the next start resumes from the last checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.faults.train_driver import FINAL, STEPS_PER_EPOCH
from tests.faults.trainers import EPOCHS, Torchrun, Trainer, assert_equal, saved
from tests.support.held_stages import wait_until_gone
from tests.support.ports import free_ports

pytestmark = pytest.mark.integration


def _two_ranks(folder: Path) -> list[int]:
    """Train as torchrun's ranks would, from a warm parent; returns the steps that were done."""
    folder.mkdir(exist_ok=True)
    (port,) = free_ports(1)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    ranks = [Trainer(folder, EPOCHS, environment=place | {"RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")]
    leading, _ = [list(rank.steps()) for rank in ranks]
    assert [rank.ended() for rank in ranks] == [0, 0]
    return leading


def test_a_killed_rank_ends_the_others_and_the_next_start_resumes(tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    every = list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    assert _two_ranks(whole) == every

    for rank, target in ((1, 8), (0, 14)):
        done = max(saved(folder), default=0)
        with Torchrun(folder) as torchrun:
            steps = torchrun.steps()
            first = next(steps)
            assert first == done + 1
            if first < target:
                next(step for step in steps if step >= target)
            os.kill(torchrun.ranks[rank], signal.SIGKILL)
            list(steps)
            assert torchrun.ended() == 1
        assert not (folder / FINAL).exists()
        assert not any(map(psutil.pid_exists, torchrun.ranks.values()))

    done = max(saved(folder))
    assert done > 0
    assert _two_ranks(folder) == every[done:]
    assert_equal(folder, whole)


def test_the_ranks_end_when_torchrun_is_killed(tmp_path: Path) -> None:
    with Torchrun(tmp_path / "run") as torchrun:
        next(torchrun.steps())
        ranks = [psutil.Process(rank) for rank in torchrun.ranks.values()]
        torchrun.process.kill()
        assert torchrun.ended() == -signal.SIGKILL
        wait_until_gone(ranks)
