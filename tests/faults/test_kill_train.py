"""Training killed with SIGKILL at any moment ends with the weights of an undisturbed run, bit for bit."""

from __future__ import annotations

import random
import re
import signal
import time
from pathlib import Path

import pytest

from components.core.compute.checkpoint import Checkpoints
from tests.faults.train_driver import STEPS_PER_EPOCH
from tests.faults.trainers import EPOCHS, Trainer, assert_equal, leftovers, saved, train_to_the_end

KILLS, LONG = 20, 8

pytestmark = pytest.mark.integration


def test_killed_at_random_steps(tmp_path: Path) -> None:
    whole, folder, rng = tmp_path / "whole", tmp_path / "killed", random.Random(11)
    whole.mkdir()
    every = list(range(1, LONG * STEPS_PER_EPOCH + 1))
    assert train_to_the_end(whole, LONG) == every
    for target in sorted(rng.sample(range(1, (LONG - 1) * STEPS_PER_EPOCH), KILLS)):
        done = max(saved(folder), default=0)
        victim = Trainer(folder, LONG, pause=LONG * STEPS_PER_EPOCH)
        steps = victim.steps()
        first = next(steps)
        assert first == done + 1
        if first < target:
            next(step for step in steps if step >= target)
        # This pause moves the kill to any moment of a step and of a checkpoint's writing.
        time.sleep(rng.uniform(0, 0.06))
        victim.kill()
        assert len(leftovers(folder)) <= 1
    done = max(saved(folder))
    assert done > 0
    assert train_to_the_end(folder, LONG) == every[done:]
    assert_equal(folder, whole)


@pytest.mark.parametrize(
    ("fault", "name", "kept"),
    [
        ("half of the tensors", "step-00000012", [6, 9]),
        ("no facts", "step-00000012", [6, 9]),
        ("facts", "step-00000012", [6, 9]),
        ("no rename", "step-00000012", [6, 9]),
        ("half removed", "step-00000006", [6, 9, 12]),
        ("half of the tensors", "best", [3]),
        ("no rename", "best", [3]),
        ("half removed", "best", [3, 6]),
        ("half of the tensors", "step-00000003", []),
    ],
)
def test_killed_while_writing(fault: str, name: str, kept: list[int], undisturbed: Path, tmp_path: Path) -> None:
    victim = Trainer(tmp_path, EPOCHS, fault=(fault, name))
    list(victim.steps())
    assert victim.ended() == -signal.SIGKILL
    assert saved(tmp_path) == kept
    if fault == "half removed":
        assert name != "best" or Checkpoints(tmp_path / "state").best() is not None
    else:
        assert len(leftovers(tmp_path)) == 1

    assert train_to_the_end(tmp_path, EPOCHS)[0] == max(kept, default=0) + 1
    assert_equal(tmp_path, undisturbed)


def test_a_second_process_is_refused_until_the_first_has_ended(undisturbed: Path, tmp_path: Path) -> None:
    first = Trainer(tmp_path, EPOCHS, pause=EPOCHS * STEPS_PER_EPOCH)
    next(step for step in first.steps() if step == 8)
    second = Trainer(tmp_path, EPOCHS)
    assert list(second.steps()) == []
    assert second.ended() == 1
    assert re.search(r"^error: .*state is in use by process \d+ on .*: wait", str(second.printed), re.MULTILINE)
    first.kill()
    assert train_to_the_end(tmp_path, EPOCHS)[0] > 1
    assert_equal(tmp_path, undisturbed)
