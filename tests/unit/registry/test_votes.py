"""Blind votes are stored, counted with an interval, and used by the gate."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from components.encoders.adapter.sidecar import read_sidecar
from components.registry.promotion import promote
from components.registry.reviews import Reviews
from components.registry.votes import Vote, Votes, wins
from tests.support.store_rows import old_store, vote


def _vote(choice: str, first: str = "x", second: str = "y", **changes: Any) -> Vote:
    encoders = {"first": "one", "first_sha256": first, "second": "two", "second_sha256": second}
    return Vote(**{"user": "Ada", "query": "a dog", "choice": choice} | encoders | changes)


def test_votes_are_kept_in_order_and_many_people_vote_at_once(store_url: str, tmp_path: Path) -> None:
    given = [_vote("first"), _vote("tie", query="ü 'quoted'; -- \U0001f415", image="a.png", paraphrase="p")]
    with closing(Votes(store_url)) as votes:
        assert votes.all() == []
        for vote in given:
            votes.add(vote)
        assert votes.all() == given
    with pytest.raises(ValueError, match="at most 1000"):
        _vote("first", query="a" * 1001)

    def cast(_number: int) -> None:
        with closing(Votes(f"sqlite:///{tmp_path / 'many' / 'store.db'}")) as store:
            for _ in range(5):
                store.add(_vote("first"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(cast, range(4)))
    with closing(Votes(f"sqlite:///{tmp_path / 'many' / 'store.db'}")) as store:
        assert len(store.all()) == 20


def test_votes_among_answers_are_copied_once_also_from_stores_that_were_moved_aside(tmp_path: Path) -> None:
    answers = tmp_path / "state" / "generations.db"
    for place, user in ((answers, "Bob"), (tmp_path / "state" / "generations-20260101-000000" / answers.name, "Ada")):
        old_store(place, user)
    url = f"sqlite:///{answers}"
    for users in (["Ada", "Bob"], ["Ada", "Bob", "Cleo"], ["Ada", "Bob", "Cleo", "Dora"]):
        with closing(Votes(url)) as votes:
            assert [one.user for one in votes.all()] == users
            votes.add(vote("Cleo" if len(users) == 2 else "Dora"))
    # As `make captions` does.
    answers.rename(tmp_path / "state" / "generations-20260202-000000")
    with closing(Votes(url)) as votes, closing(Reviews(url)) as reviews:
        assert (len(votes.all()), reviews.all()) == (5, [])
    assert not answers.exists()


def test_wins_leave_ties_out_and_count_the_last_of_repeated_votes() -> None:
    repeated = [_vote("first") for _ in range(20)] + [_vote("first", user="Bob"), _vote("first", query="a cat")]
    for cast, expected in ((repeated, (3, 0)), ([*repeated, _vote("second")], (2, 1))):
        found = wins(cast, "x", "y")
        assert (found.won, found.lost) == expected
    given = [("first", "x", "y"), ("second", "y", "x"), ("second", "x", "y"), ("tie", "x", "y"), ("first", "x", "z")]
    votes = [_vote(*choice, query=str(number)) for number, choice in enumerate(given)]
    found = wins(votes, "x", "y")
    assert (found.won, found.lost, found.ties, found.share) == (2, 1, 1, pytest.approx(2 / 3))
    interval = binomtest(2, 3).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert wins(votes, "y", "x").share == pytest.approx(1 / 3)
    nobody = wins(votes, "y", "z")
    assert (nobody.share, nobody.low, nobody.high) == (0.5, 0.0, 1.0)


def test_the_gate_uses_votes(project: Any, tmp_path: Path) -> None:
    base = project.settings.synthesize.model_copy(update={"store": f"sqlite:///{tmp_path / 'many' / 'store.db'}"})
    policy = project.settings.promote.model_copy(update={"min_vote_win_rate": 0.5})
    settings = project.settings.model_copy(update={"synthesize": base, "promote": policy})
    encoder = project.add("paraclip", 2, 0.5)
    decision = promote(settings)
    assert decision.outcome == "refused"
    assert {rule.name: rule.reason for rule in decision.rules if not rule.passed}.keys() == {"votes"}
    before = read_sidecar(Path("models/base")).weights_sha256
    store = Votes(f"sqlite:///{tmp_path / 'many' / 'store.db'}")
    for number in range(12):
        choice = "first" if number < 9 else "second"
        store.add(_vote(choice, encoder.sidecar.weights_sha256, before, query=str(number)))
    # 75 % of 12 votes may be chance: the lower end of the interval is 47 %.
    assert promote(settings).outcome == "refused"
    for number in range(6):
        store.add(_vote("first", encoder.sidecar.weights_sha256, before, query=str(number), user="Bob"))
    store.close()
    decision = promote(settings)
    assert decision.outcome == "promoted"
    assert "won 15 of 18" in next(rule.reason for rule in decision.rules if rule.name == "votes")
