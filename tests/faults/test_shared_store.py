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

ROWS = 5000
KEYS = keys(requests(ROWS))
STOP_AFTER = 1008
REPO = Path(__file__).parents[2]


def _start(url: str, name: str, *stop_after: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.store_worker", url, name, str(ROWS), *stop_after]
    return subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.integration
def test_stored_answers_of_a_killed_process_survive_and_two_others_complete_them(store_url: str) -> None:
    with _start(store_url, "killed", str(STOP_AFTER)) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "stopped\n"
        victim.kill()
    store = GenerationStore(store_url)
    kept = store.answers(KEYS)
    # At most the batch of the open transaction is lost.
    assert STOP_AFTER - BATCH <= len(kept) <= STOP_AFTER
    with _start(store_url, "one") as one, _start(store_url, "two") as two:
        counts = [[int(count) for count in worker.communicate()[0].split()] for worker in (one, two)]
    assert [sum(of_worker) for of_worker in counts] == [ROWS, ROWS]
    assert all(replayed >= len(kept) for replayed, _ in counts)
    answers = store.answers(KEYS)
    assert (store.count(), len(answers)) == (ROWS, ROWS)
    assert Counter(answers.values())["killed"] == len(kept)
    assert answers.items() >= kept.items()
