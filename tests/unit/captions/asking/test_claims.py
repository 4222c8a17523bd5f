"""A question is one worker's at a time: taken once, kept while the worker lives, free again when it does not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import text

from components.captions.asking.claims import Claims
from components.captions.request import Request
from components.captions.store import GenerationStore
from components.core import worker_identity as workers
from components.core.errors import InputError
from tests.support.store_rows import failures, keys, replies, requests

ASKED = requests(10)
KEYS = keys(ASKED)
HOLDING = """
import sys
from components.captions.store import GenerationStore
claims = GenerationStore(sys.argv[1]).claims()
claims.__enter__()
print(len(claims.take(sys.argv[2:])), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(store_url: str) -> GenerationStore:
    return GenerationStore(store_url)


@pytest.fixture
def other(store_url: str) -> GenerationStore:
    return GenerationStore(store_url)


def _insert(store: GenerationStore, key: str, worker: str, lease: float) -> None:
    statement = text(f"INSERT INTO claims VALUES (:key, :worker, {store._database.dialect.now} + :lease)")
    store._database.write(lambda found: found.execute(statement, {"key": key, "worker": worker, "lease": lease}))


def _live(store: GenerationStore) -> tuple[int, int]:
    found = store.stats()
    return found.live_claims, found.expired_claims


def _lease_end(store: GenerationStore) -> float:
    """Of the claim that ends first."""
    query = text("SELECT min(lease_end) FROM claims")
    return float(store._database.read(lambda found: found.execute(query).scalar_one()))


def _eventually(holds: Callable[[], bool]) -> None:
    """Wait for what must come; nothing is said about when."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def test_each_question_is_given_once(store: GenerationStore, other: GenerationStore) -> None:
    with store.claims() as mine, other.claims() as theirs:
        assert mine.take(KEYS[:6]) == set(KEYS[:6])
        assert theirs.take(KEYS) == set(KEYS[6:])
        assert mine.take(KEYS) == set()
        assert mine.take([]) == set()
        assert _live(store) == (10, 0)


def test_two_workers_in_one_process_are_two(store: GenerationStore) -> None:
    with store.claims() as one, store.claims() as two:
        assert one.take(KEYS) == set(KEYS)
        assert two.take(KEYS) == set()


def test_an_answered_question_is_never_given(store: GenerationStore, other: GenerationStore) -> None:
    store.add(replies(ASKED[:4]))
    with store.claims() as mine, other.claims() as theirs:
        assert mine.take(KEYS) == set(KEYS[4:])
        store.add(replies(ASKED[4:8]))
        assert theirs.take(KEYS) == set()
        assert _live(store) == (2, 0)


def test_a_failed_question_can_be_taken_again(store: GenerationStore, other: GenerationStore) -> None:
    with store.claims() as mine, other.claims() as theirs:
        mine.take(KEYS)
        store.add(failures(ASKED[:2]))
        assert mine.take(KEYS) == set(KEYS[:2])
        store.add(failures(ASKED[2:4]))
        assert theirs.take(KEYS) == set(KEYS[2:4])


def test_a_late_failure_does_not_end_anothers_claim(store: GenerationStore, other: GenerationStore) -> None:
    with store.claims() as mine, other.claims() as theirs:
        mine.take(KEYS)
        other.add(failures(ASKED))
        assert theirs.take(KEYS) == set()
        other.add(replies(ASKED[:5]))
        assert _live(store) == (5, 0), "an answer ends it, whosever it is"


def test_what_is_held_is_given_back_at_the_end(store: GenerationStore, other: GenerationStore) -> None:
    def stopped() -> None:
        with store.claims() as mine:
            mine.take(KEYS[:8])
            theirs.take(KEYS[8:])
            raise RuntimeError("stop")

    with other.claims() as theirs:
        with pytest.raises(RuntimeError, match="stop"):
            stopped()
        assert theirs.take(KEYS) == set(KEYS[:8])
        assert _live(store) == (10, 0)


def test_leases_are_renewed_while_the_worker_lives(store: GenerationStore) -> None:
    with store.claims(lease_s=0.9) as claims:
        claims.take(KEYS)
        before = _lease_end(store)
        _eventually(lambda: _lease_end(store) > before)
        again = _lease_end(store)
        _eventually(lambda: _lease_end(store) > again)


def test_a_lease_that_ended_is_anyones(store: GenerationStore) -> None:
    _insert(store, KEYS[0], "elsewhere 1 1.0 a", -1)
    _insert(store, KEYS[1], "elsewhere 1 1.0 a", 3600)
    _insert(store, KEYS[2], "elsewhere 1 1.0 a", 0.3)
    assert _live(store)[1] >= 1
    with store.claims() as claims:
        assert claims.take(KEYS[:2]) == {KEYS[0]}
        _eventually(lambda: claims.take(KEYS[:3]) == {KEYS[2]})
        assert claims.take(KEYS[:3]) == set()


def test_leases_that_ended_long_ago_are_forgotten(store: GenerationStore) -> None:
    _insert(store, KEYS[0], "elsewhere 1 1.0 a", -3600)
    _insert(store, KEYS[1], "elsewhere 1 1.0 a", -90_000)
    with store.claims():
        assert _live(store) == (0, 1)


def test_an_ended_lease_on_an_answered_question_is_not_given(store: GenerationStore) -> None:
    store.add(replies(ASKED[:1]))
    _insert(store, KEYS[0], "elsewhere 1 1.0 a", -1)
    with store.claims() as claims:
        assert claims.take(KEYS[:1]) == set()


def test_a_worker_killed_on_this_host_is_known_to_be_dead_at_once(store: GenerationStore, store_url: str) -> None:
    command = [sys.executable, "-c", HOLDING, store_url, *KEYS]
    with store.claims() as claims:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "10\n"
            assert claims.take(KEYS) == set()
            victim.kill()
            _eventually(lambda: claims.take(KEYS) == set(KEYS))
        assert _live(store) == (10, 0)


def test_a_new_worker_starts_with_what_dead_ones_left(store: GenerationStore) -> None:
    mine = workers.new_worker()
    host, pid, started, _ = mine.split(" ")
    dead = [f"{host} {pid} {float(started) - 100:.2f} a", f"{host} 4000001 {started} a"]
    others = [mine, f"elsewhere 4000001 {started} a", f"{host}x {pid} 1.0 a", "of another version"]
    for key, worker in zip(KEYS, [*dead, *others], strict=False):
        _insert(store, key, worker, 3600)
    with store.claims() as claims:
        assert _live(store) == (4, 0)
        assert claims.take(KEYS) == {*KEYS[:2], *KEYS[6:]}


def test_a_worker_whose_process_nobody_reaped_is_gone() -> None:
    code = "from components.core import worker_identity as workers; print(workers.new_worker(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        worker = child.stdout.readline().strip()
        _eventually(lambda: workers.is_gone(worker))
        assert child.returncode is None
    assert workers.is_gone(worker)
    assert not workers.is_gone(workers.new_worker())


def test_a_claim_whose_confirmation_was_lost_is_not_lost(
    store: GenerationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.claims() as claims:
        take = store._database.dialect.take
        claimed: list[set[str]] = []

        def twice(*arguments: object) -> set[str]:
            claimed.append(take(*arguments))  # type: ignore[arg-type]
            return take(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(store._database.dialect, "take", twice)
        assert claims.take(KEYS) == claimed[0] == set(KEYS)


def test_renewing_goes_on_after_the_database_was_away(store: GenerationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, failed, write = "ALTER TABLE {} RENAME TO {}", [], store._database.write

    def watched(*arguments: Any, **options: Any) -> Any:
        try:
            return write(*arguments, **options)
        except InputError as error:
            failed.append(error)
            raise

    with store.claims(lease_s=0.9) as claims:
        claims.take(KEYS)
        before = _lease_end(store)
        monkeypatch.setattr(store._database, "write", watched)
        write(lambda found: found.execute(text(rename.format("claims", "hidden"))))
        _eventually(lambda: len(failed) > 1)
        write(lambda found: found.execute(text(rename.format("hidden", "claims"))))
        _eventually(lambda: _lease_end(store) > before)


def test_workers_that_want_the_same_at_the_same_time_never_get_it_twice(store_url: str) -> None:
    asked, given = requests(300), Counter[str]()
    GenerationStore(store_url).close()

    def work(number: int) -> None:
        store = GenerationStore(store_url)
        with store.claims() as claims:
            for start in range(0, 300, 20):
                # Everyone wants overlapping blocks, from different ends.
                block = asked[start : start + 40] if number % 2 else asked[-start - 40 :]
                taken = claims.take(keys(block))
                given.update(taken)
                store.add(replies(one for one in block if one.key in taken))
        store.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(given.values()) == {1}
    assert GenerationStore(store_url).count() == len(given) == 300


class Workers(RuleBasedStateMachine):
    """Three workers taking, answering, failing and leaving in any order."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        url = f"sqlite:///{Path(self.folder.name) / 'store.db'}"
        self.stores = [GenerationStore(url) for _ in range(3)]
        self.claims: list[Claims] = [store.claims().__enter__() for store in self.stores]
        self.holding: list[set[str]] = [set() for _ in self.stores]
        self.answered: set[str] = set()

    @rule(worker=st.integers(0, 2), wanted=st.sets(st.sampled_from(ASKED)))
    def take(self, worker: int, wanted: set[Request]) -> None:
        taken = self.claims[worker].take(keys(wanted))
        assert taken == {one.key for one in wanted} - self.answered - set().union(*self.holding)
        self.holding[worker] |= taken

    @rule(worker=st.integers(0, 2), data=st.data(), fine=st.booleans())
    def reply(self, worker: int, data: st.DataObject, fine: bool) -> None:
        mine = [one for one in ASKED if one.key in self.holding[worker]]
        if not mine:
            return
        done = data.draw(st.lists(st.sampled_from(mine), unique_by=lambda one: one.key))
        self.stores[worker].add((replies if fine else failures)(done))
        self.holding[worker] -= set(keys(done))
        if fine:
            self.answered |= set(keys(done))

    @rule(worker=st.integers(0, 2))
    def leave_and_come_again(self, worker: int) -> None:
        self.claims[worker].__exit__(None, None, None)
        self.claims[worker] = self.stores[worker].claims().__enter__()
        self.holding[worker] = set()

    @invariant()
    def the_store_knows(self) -> None:
        if hasattr(self, "stores"):
            found = self.stores[0].stats()
            assert (found.rows, found.live_claims) == (len(self.answered), sum(map(len, self.holding)))

    def teardown(self) -> None:
        for claims, store in zip(self.claims, self.stores, strict=True):
            claims.__exit__(None, None, None)
            store.close()
        self.folder.cleanup()


Workers.TestCase.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
TestWorkers = Workers.TestCase
