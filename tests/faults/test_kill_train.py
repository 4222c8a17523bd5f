"""Training killed with SIGKILL, at any moment, ends with the weights of a run that nobody disturbed, bit for bit."""

from __future__ import annotations

import random
import re
import signal
import time
from pathlib import Path

import pytest

from components.core.compute.checkpoint import Checkpoints
from tests.faults.train_driver import STEPS_PER_EPOCH
from tests.faults.trainers import Trainer, assert_equal, leftovers, saved

KILLS, LONG, SHORT = 20, 8, 2

pytestmark = pytest.mark.integration


def _train_from(folder: Path, epochs: int) -> int:
    """Train to the end; returns the first step that was done."""
    trainer = Trainer(folder, epochs)
    steps = list(trainer.steps())
    assert trainer.ended() == 0
    assert steps == list(range(steps[0], epochs * STEPS_PER_EPOCH + 1))
    assert not leftovers(folder)
    return steps[0]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert _train_from(folder, SHORT) == 1
    return folder


def test_killed_at_random_steps(tmp_path: Path) -> None:
    whole, folder, rng = tmp_path / "whole", tmp_path / "killed", random.Random(11)
    whole.mkdir()
    assert _train_from(whole, LONG) == 1
    for target in sorted(rng.sample(range(1, (LONG - 1) * STEPS_PER_EPOCH), KILLS)):
        done = max(saved(folder), default=0)
        victim = Trainer(folder, LONG, pause=True)
        steps = victim.steps()
        first = next(steps)
        assert first == done + 1
        if first < target:
            next(step for step in steps if step >= target)
        # Not to wait for anything: it moves the kill to any moment of a step and of a checkpoint's writing.
        time.sleep(rng.uniform(0, 0.06))
        victim.kill()
        assert len(leftovers(folder)) <= 1
    done = max(saved(folder))
    assert done > 0
    assert _train_from(folder, LONG) == done + 1
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
        ("half of the tensors", "step-00000003", []),
    ],
)
def test_killed_while_writing(fault: str, name: str, kept: list[int], undisturbed: Path, tmp_path: Path) -> None:
    victim = Trainer(tmp_path, SHORT, fault=(fault, name))
    list(victim.steps())
    assert victim.ended() == -signal.SIGKILL
    assert saved(tmp_path) == kept
    assert len(leftovers(tmp_path)) == (fault != "half removed")

    assert _train_from(tmp_path, SHORT) == max(kept, default=0) + 1
    assert_equal(tmp_path, undisturbed)


def test_killed_while_the_best_weights_are_replaced(undisturbed: Path, tmp_path: Path) -> None:
    victim = Trainer(tmp_path, SHORT, fault=("half removed", "best"))
    list(victim.steps())
    assert victim.ended() == -signal.SIGKILL
    assert saved(tmp_path) == [3, 6]
    assert Checkpoints(tmp_path / "state").best() is not None

    assert _train_from(tmp_path, SHORT) == 7
    assert_equal(tmp_path, undisturbed)


def test_a_broken_checkpoint_does_not_push_out_new_ones(undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "state" / "step-00000099").mkdir(parents=True)
    victim = Trainer(tmp_path, SHORT, fault=("no rename", "step-00000012"))
    list(victim.steps())
    assert saved(tmp_path) == [6, 9]
    assert _train_from(tmp_path, SHORT) == 10
    assert_equal(tmp_path, undisturbed)


@pytest.mark.parametrize("fault", ["no space for tensors", "no space for facts"])
def test_a_full_disk_stops_the_run_in_one_line(fault: str, undisturbed: Path, tmp_path: Path) -> None:
    stopped = Trainer(tmp_path, SHORT, fault=(fault, "step-00000012"))
    assert list(stopped.steps())[-1] == 12
    assert stopped.ended() == 1
    errors = re.findall(r"^error: .*$", str(stopped.printed), re.MULTILINE)
    assert len(errors) == 1
    assert re.search(r"step-00000012 cannot be written \(.*File too large.*\): free space", errors[0])
    assert saved(tmp_path) == [6, 9]
    assert not leftovers(tmp_path)

    assert _train_from(tmp_path, SHORT) == 10
    assert_equal(tmp_path, undisturbed)


def test_a_second_process_is_kept_off_until_the_first_is_gone(undisturbed: Path, tmp_path: Path) -> None:
    first = Trainer(tmp_path, SHORT, pause=True)
    steps = first.steps()
    next(step for step in steps if step == 8)

    second = Trainer(tmp_path, SHORT)
    assert list(second.steps()) == []
    assert second.ended() == 1
    assert re.search(
        r"^error: .*state is in use by process \d+ on .*: wait for it or stop it$", str(second.printed), re.MULTILINE
    )

    first.kill()
    assert _train_from(tmp_path, SHORT) > 1
    assert_equal(tmp_path, undisturbed)
