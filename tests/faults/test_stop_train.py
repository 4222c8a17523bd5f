"""Training stopped by Ctrl-C or SIGTERM saves its last step, and the next start resumes from there."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.faults.train_driver import CHECKPOINT_EVERY, STEPS_PER_EPOCH
from tests.faults.trainers import EPOCHS, Torchrun, Trainer, assert_equal, leftovers, saved, train_to_the_end

LAST = EPOCHS * STEPS_PER_EPOCH

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_no_finished_step_is_lost(number: signal.Signals, code: int, undisturbed: Path, tmp_path: Path) -> None:
    done = 0
    # The second is in the second epoch.
    for target in (CHECKPOINT_EVERY + 1, STEPS_PER_EPOCH + 2):
        trainer = Trainer(tmp_path, EPOCHS, pause=target)
        seen = []
        for step in trainer.steps():
            seen.append(step)
            if step == target:
                trainer.send_signal(number)
        assert trainer.ended() == code
        assert seen == list(range(done + 1, seen[-1] + 1))
        assert seen[-1] == target
        done = saved(tmp_path)[-1]
        assert done == seen[-1]
        assert not leftovers(tmp_path)
    assert train_to_the_end(tmp_path, EPOCHS) == list(range(done + 1, LAST + 1))
    assert_equal(tmp_path, undisturbed)


@pytest.mark.parametrize("receiver", ["launcher", "rank 0", "rank 1"])
def test_all_ranks_stop_together(receiver: str, tmp_path: Path) -> None:
    with Torchrun(tmp_path) as torchrun:
        last = 0
        for last in torchrun.steps():
            if last == CHECKPOINT_EVERY + 1:
                if receiver == "launcher":
                    torchrun.process.send_signal(signal.SIGINT)
                else:
                    os.kill(torchrun.ranks[int(receiver[-1])], signal.SIGTERM)
        assert torchrun.ended() in (1, -signal.SIGINT)
    assert not re.search("SignalException|ChildFailedError", torchrun.errors.read_text())
    assert CHECKPOINT_EVERY < last < LAST
    assert saved(tmp_path)[-1] == last
