"""Processes on one store keep one answer per row, and answers that a killed process had stored survive."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from components.captions.generating.store import GenerationStore
from tests.faults.store_worker import BATCH
from tests.support.store_rows import keys, requests

pytestmark = pytest.mark.integration
ROWS = 5000
KEYS = keys(requests(ROWS))
STOP_AFTER = 1008
REPO = Path(__file__).parents[2]


def _start(url: str, name: str, *stop_after: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.store_worker", url, name, str(ROWS), *stop_after]
    return subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _result(worker: subprocess.Popen[str]) -> tuple[int, int]:
    output, _ = worker.communicate()
    assert worker.returncode == 0
    replayed, generated = output.split()
    return int(replayed), int(generated)


def test_two_processes_at_once_store_one_answer_per_row(store_url: str) -> None:
    with _start(store_url, "one") as one, _start(store_url, "two") as two:
        assert [sum(_result(worker)) for worker in (one, two)] == [ROWS, ROWS]
    store = GenerationStore(store_url)
    assert (store.count(), len(store.answers(KEYS))) == (ROWS, ROWS)


def test_answers_that_a_killed_process_stored_are_replayed(store_url: str) -> None:
    with _start(store_url, "one", str(STOP_AFTER)) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "stopped\n"
        victim.kill()
    store = GenerationStore(store_url)
    kept = store.answers(KEYS)
    # Lost is at most the batch whose transaction had not ended.
    assert STOP_AFTER - BATCH <= len(kept) <= STOP_AFTER
    with _start(store_url, "two") as survivor:
        assert _result(survivor) == (len(kept), ROWS - len(kept))
    answers = store.answers(KEYS)
    assert Counter(answers.values()) == {"one": len(kept), "two": ROWS - len(kept)}
    assert answers.items() >= kept.items()
