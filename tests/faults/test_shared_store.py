"""Two processes on one store generate every row once, even when one of them is killed half way."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from components.captions.asking.writing import WAITING
from components.captions.store import GenerationStore
from tests.faults.store_worker import BATCH
from tests.support.store_rows import keys, requests

pytestmark = pytest.mark.integration
ROWS = 5000
KEYS = keys(requests(ROWS))
LINE = len(KEYS[0]) + 1
STOP_AFTER = 1000
REPO = Path(__file__).parents[2]
NAMES = ("one", "two")
TRANSACTION = WAITING + 1
"""Batches that are stored together at most."""


def _start(
    url: str, folder: Path, name: str, wait_for: int = 1, stop_after: int | None = None
) -> subprocess.Popen[str]:
    other = NAMES[1 - NAMES.index(name)]
    command = [sys.executable, "-m", "tests.faults.store_worker", url, str(ROWS)]
    command += [str(folder / name), str(folder / other), str(wait_for * LINE)]
    command += [] if stop_after is None else [str(stop_after)]
    return subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _generated(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text("ascii").split()


def _result(worker: subprocess.Popen[str]) -> tuple[int, int]:
    output, _ = worker.communicate()
    assert worker.returncode == 0
    replayed, generated = output.split()
    return int(replayed), int(generated)


def test_two_processes_generate_each_row_once(store_url: str, tmp_path: Path) -> None:
    GenerationStore(store_url).close()
    with _start(store_url, tmp_path, "one") as one, _start(store_url, tmp_path, "two") as two:
        counts = [_result(one), _result(two)]
    logs = [_generated(tmp_path, name) for name in NAMES]
    assert Counter(logs[0] + logs[1]) == Counter(KEYS)
    assert [generated for _, generated in counts] == [len(log) for log in logs]
    assert [sum(count) for count in counts] == [ROWS, ROWS]
    assert min(map(len, logs)) >= BATCH, "both have done some"
    store = GenerationStore(store_url)
    expected = dict.fromkeys(logs[0], "one") | dict.fromkeys(logs[1], "two")
    assert store.answers(KEYS) == expected
    assert (store.stats().live_claims, store.stats().expired_claims) == (0, 0)


def test_what_a_killed_process_had_taken_is_generated_by_the_other(store_url: str, tmp_path: Path) -> None:
    GenerationStore(store_url).close()
    # The survivor waits for the victim's last batch: otherwise it may have done everything before the victim begins.
    with (
        _start(store_url, tmp_path, "one", stop_after=STOP_AFTER) as victim,
        _start(store_url, tmp_path, "two", wait_for=STOP_AFTER + 1) as survivor,
    ):
        assert victim.stdout is not None
        assert victim.stdout.readline() == "stopped\n"
        victim.kill()
        replayed, generated = _result(survivor)
    store = GenerationStore(store_url)
    answers = store.answers(KEYS)
    by = Counter(answers.values())
    assert by["one"] + by["two"] == len(answers) == store.count() == ROWS
    assert (by["one"], by["two"]) == (replayed, generated)
    logs = [_generated(tmp_path, name) for name in NAMES]
    # Generated twice is what the victim was answering, and the few batches that the store had not taken yet.
    lost = len(logs[0]) - by["one"]
    assert set(logs[0]) & set(logs[1]) == set(logs[0][-lost:])
    assert BATCH <= lost <= (1 + WAITING + TRANSACTION) * BATCH
    assert sorted(logs[1]) == sorted(set(logs[1]))
    assert (store.stats().live_claims, store.stats().expired_claims) == (0, 0)
    with _start(store_url, tmp_path, "one") as again:
        assert _result(again) == (ROWS, 0)
