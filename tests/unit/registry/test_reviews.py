"""Reviews are counted once for each query of the current test set, with an interval, and used by gate and card."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from components.core.tables.written_queries import frozen_hash
from components.registry.promotion import promote
from components.registry.reviews import Review, Reviewed, Reviews, read_reviewed, reviewed, verdicts
from tests.support.store_rows import old_store
from tests.support.written_queries import write_test_set


def _review(query: int, verdict: str, kind: str = "swap", test_set: str = "t") -> Review:
    texts = {"caption": f"caption {query}", "query": f"{kind} of caption {query}", "kind": kind}
    return Review(user="Ada", test_set=test_set, verdict=verdict, **texts)


def _told(found: Reviewed) -> tuple[str, int, int]:
    return found.kind, found.read, found.right


def test_shares_count_the_last_verdict_on_each_query_of_this_test_set() -> None:
    given = [_review(number, "right") for number in range(8)]
    given += [_review(0, "wrong"), _review(1, "wrong", "negation"), _review(9, "right", test_set="other")]
    found = reviewed(verdicts(given, "t"))
    assert [_told(share) for share in found] == [("negation", 1, 0), ("swap", 8, 7), ("all", 9, 7)]
    # Below twenty reviews there is no interval.
    assert (found[-1].share, found[-1].low, found[-1].high) == (pytest.approx(7 / 9), 0, 1)
    assert str(found[-1]).endswith("78% [0%, 100%], as one person judges")
    assert reviewed(verdicts(given, "a new test set")) == []


def test_gate_card_and_report_state_the_reviews(project: Any, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    synthesize = project.settings.synthesize.model_copy(update={"store": store})
    policy = project.settings.promote.model_copy(update={"min_reviewed": 0.8})
    settings = project.settings.model_copy(update={"synthesize": synthesize, "promote": policy})
    project.add("paraclip", 2, 0.5)
    assert read_reviewed(store) is None
    write_test_set(Path("data/test_set"), [(f"image {number}", f"caption {number}") for number in range(40)])
    for count, outcome in ((0, "refused"), (19, "refused"), (21, "promoted")):
        with closing(Reviews(store)) as reviews:
            for number in range(count):
                reviews.add(_review(number, "right", test_set=frozen_hash(Path("data/test_set"))))
        decision = promote(settings)
        assert decision.outcome == outcome
        (rule,) = (rule for rule in decision.rules if rule.name == "reviewed")
        right = f"{count} of {count} read test queries are right" if count else "no sample of the test queries was read"
        assert right in rule.reason


def test_reviews_are_kept_in_order_and_several_people_review_at_once(store_url: str, tmp_path: Path) -> None:
    given = [_review(0, "right"), _review(1, "wrong").model_copy(update={"query": "ü 'quoted'; -- \U0001f415"})]
    with closing(Reviews(store_url)) as reviews:
        assert reviews.all() == []
        for review in given:
            reviews.add(review)
        assert reviews.all() == given
    with pytest.raises(ValueError, match="at most 1000"):
        Review(**given[0].model_dump() | {"user": "a" * 1001})
    url = f"sqlite:///{tmp_path / 'many' / 'store.db'}"

    def read(_number: int) -> None:
        with closing(Reviews(url)) as store:
            for number in range(5):
                store.add(_review(number, "right"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))
    with closing(Reviews(url)) as store:
        assert len(store.all()) == 20


def test_reviews_of_earlier_versions_are_copied_once_and_votes_remain(tmp_path: Path) -> None:
    answers, votes = tmp_path / "state" / "generations.db", tmp_path / "state" / "votes.db"
    old_store(votes, "Cleo")
    old_store(answers, "Bob")
    old_store(tmp_path / "state" / "generations-20260101-000000" / answers.name, "Ada")
    with closing(sqlite3.connect(votes)) as database, database:
        database.execute("CREATE TABLE votes (choice TEXT)")
        database.execute("INSERT INTO votes VALUES ('first')")
    before = votes.read_bytes()
    for users in (["Ada", "Bob", "Cleo"], ["Ada", "Bob", "Cleo", "Dora"]):
        with closing(Reviews(f"sqlite:///{answers}")) as reviews:
            assert [review.user for review in reviews.all()] == users
            reviews.add(_review(0, "right").model_copy(update={"user": "Dora"}))
    assert votes.read_bytes() == before
