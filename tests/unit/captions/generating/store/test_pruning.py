"""What is pruned is what was chosen, all of it and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from components.captions.generating.store import Choice, GenerationStore, Pruned
from components.core.system.errors import InputError
from tests.support.store_rows import failures, replies, request

OLD = [request(f"old {number}") for number in range(3)]
OTHER = [request("other model", model="n"), request("other task", task="rewrite")]
NEW = [request("new")]


@pytest.fixture
def store(store_url: str) -> GenerationStore:
    """Three old answers of `paraphrase_1` by `m`, one new, one each of another model and task, two failures."""
    store = GenerationStore(store_url)
    store.add(replies(OLD))
    old = text("UPDATE generations SET created = '2020-02-03T04:05:06+00:00'")
    store._database.write(lambda found: found.execute(old))
    store.add([*replies([*OTHER, *NEW]), *failures([request("bad"), request("bad", model="n")])])
    return store


@pytest.mark.parametrize(
    ("choice", "gone"),
    [
        (Choice(task="rewrite"), [Pruned("rewrite", "m", 1)]),
        (Choice(model="n"), [Pruned("paraphrase_1", "n", 1)]),
        (Choice(before=datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)), []),
        (Choice(before=datetime(2020, 2, 3, 6, 5, 7, tzinfo=UTC).astimezone()), [Pruned("paraphrase_1", "m", 3)]),
        (Choice(task="paraphrase_1"), [Pruned("paraphrase_1", "m", 4), Pruned("paraphrase_1", "n", 1)]),
        (Choice("paraphrase_1", "m", datetime.now(UTC) - timedelta(days=1)), [Pruned("paraphrase_1", "m", 3)]),
        (Choice(task="nothing"), []),
    ],
)
def test_answers_that_match_all_filters_are_deleted(store: GenerationStore, choice: Choice, gone: list[Pruned]) -> None:
    assert store.prune(choice, dry_run=True) == gone
    assert store.count() == 6
    assert store.prune(choice) == gone
    assert store.count() == 6 - sum(group.rows for group in gone)
    assert len(store.stats().failures) == 1


def test_failures_go_only_when_asked_for(store: GenerationStore) -> None:
    assert store.prune(Choice(failed=True, before=datetime.now(UTC) - timedelta(hours=1))) == []
    assert store.prune(Choice(failed=True, model="n")) == [Pruned("paraphrase_1", "n", 1)]
    assert store.prune(Choice(failed=True)) == [Pruned("paraphrase_1", "m", 1)]
    assert (store.count(), store.stats().failures) == (6, ())


def test_pruning_everything_by_mistake_is_refused(store: GenerationStore) -> None:
    with pytest.raises(InputError, match="give --task, --model, --older-than or --failed"):
        store.prune(Choice())
    assert store.count() == 6
