"""Training stopped by Ctrl-C or SIGTERM saves what it did, and the next start goes on from there."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.faults.train_driver import CHECKPOINT_EVERY, STEPS_PER_EPOCH
from tests.faults.trainers import Torchrun, Trainer, assert_equal, leftovers, saved

EPOCHS = 2
LAST = EPOCHS * STEPS_PER_EPOCH

pytestmark = pytest.mark.integration


def _finish(folder: Path) -> list[int]:
    trainer = Trainer(folder, EPOCHS)
    steps = list(trainer.steps())
    assert trainer.ended() == 0
    return steps


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert _finish(folder) == list(range(1, LAST + 1))
    return folder


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_no_step_that_was_done_is_lost(number: signal.Signals, code: int, undisturbed: Path, tmp_path: Path) -> None:
    done = 0
    # The second is in the second epoch.
    for target in (CHECKPOINT_EVERY + 1, STEPS_PER_EPOCH + 2):
        trainer = Trainer(tmp_path, EPOCHS, pause=True)
        seen = []
        for step in trainer.steps():
            seen.append(step)
            if step == target:
                trainer.tell(number)
        assert trainer.ended() == code
        assert seen == list(range(done + 1, seen[-1] + 1))
        assert target <= seen[-1] < LAST
        done = saved(tmp_path)[-1]
        assert done == seen[-1]
        assert not leftovers(tmp_path)
    assert _finish(tmp_path) == list(range(done + 1, LAST + 1))
    assert_equal(tmp_path, undisturbed)


@pytest.mark.parametrize("whom", ["launcher", "rank 0", "rank 1"])
def test_all_ranks_stop_together(whom: str, tmp_path: Path) -> None:
    with Torchrun(tmp_path) as torchrun:
        last = 0
        for last in torchrun.steps():
            if last == CHECKPOINT_EVERY + 1:
                if whom == "launcher":
                    torchrun.tell(signal.SIGINT)
                else:
                    os.kill(torchrun.ranks[int(whom[-1])], signal.SIGTERM)
        assert torchrun.ended() in (1, -signal.SIGINT)
    assert not re.search("SignalException|ChildFailedError", torchrun.errors.read_text())
    assert CHECKPOINT_EVERY < last < LAST
    assert saved(tmp_path)[-1] == last
