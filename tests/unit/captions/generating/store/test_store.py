"""The generation store: nothing twice, nothing lost, whichever database holds it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from components.captions.generating.store import GenerationStore
from components.captions.generating.store.database import storable
from components.captions.prompting.request import Reply, Request
from components.core.system.errors import InputError
from tests.support.store_rows import SAMPLING, failures, keys, replies, request, requests


@pytest.fixture
def store(store_url: str) -> GenerationStore:
    return GenerationStore(store_url)


def test_an_answer_is_never_replaced(store: GenerationStore) -> None:
    store.add([Reply(request(), "first")])
    store.add([Reply(request(), "second"), Reply(request("a cat"), "third")])
    assert store.answers(keys([request(), request("a cat")])) == {request().key: "first", request("a cat").key: "third"}


def test_answers_survive_closing_and_many_keys_are_found(store_url: str) -> None:
    store, asked = GenerationStore(store_url), requests(4500)
    store.add(replies(asked))
    store.close()
    again = GenerationStore(store_url)
    assert again.answers([*keys(asked), *keys(requests(5000))]) == dict.fromkeys(keys(asked), "an answer")
    assert again.answers([]) == {}


def test_any_answer_is_kept(store: GenerationStore) -> None:
    answers = {
        "": "",
        "ein Hund\n\t'x' \"y\" \\ {a,b} % :key": "ein Hund\n\t'x' \"y\" \\ {a,b} % :key",
        "a\0b": "a\N{REPLACEMENT CHARACTER}b",
        "half \ud83d a pair": "half \N{REPLACEMENT CHARACTER} a pair",
        "\ud83d\ude00": "\N{GRINNING FACE}",
    }
    asked, failed = requests(len(answers)), requests(2 * len(answers))[len(answers) :]
    store.add([Reply(question, answer) for question, answer in zip(asked, answers, strict=True)])
    assert store.answers(keys(asked)) == dict(zip(keys(asked), answers.values(), strict=True))
    store.add([Reply(question, None, reason) for question, reason in zip(failed, answers, strict=True)])
    assert len(store.failures(keys(failed))) == len(answers)


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_stored_is_text_for_every_database(answer: str) -> None:
    kept = storable(answer)
    assert "\0" not in kept
    assert kept.encode().decode() == kept
    if "\0" not in answer and not any("\ud800" <= character <= "\udfff" for character in answer):
        assert kept == answer


def test_a_failure_counts_its_attempts_and_keeps_the_last_reason(store: GenerationStore) -> None:
    old, new = request("old"), request("new")
    store.add(failures([old], "HTTP 500"))
    store.add([*failures([old], "HTTP 503"), *failures([new], " timed\nout "), *replies([request("fine")])])
    assert store.failures(keys([old, new, request("fine")])) == {old.key: "HTTP 503", new.key: "timed out"}
    assert [(one.rows, one.attempts) for one in store.stats().failures] == [(1, 2), (1, 1)]


def test_an_answer_fixes_a_failure_and_no_failure_harms_an_answer(store: GenerationStore) -> None:
    store.add(failures([request()]))
    store.add(replies([request()]))
    assert store.failures([request().key]) == {}
    store.add(failures([request(), request("a cat")]))
    assert store.failures(keys([request(), request("a cat")])) == {request("a cat").key: "HTTP 500"}
    assert store.answers([request().key]) == {request().key: "an answer"}


def test_a_batch_is_stored_whole_or_not_at_all(store: GenerationStore) -> None:
    store._database.write(lambda connection: connection.execute(text("ALTER TABLE failures RENAME TO hidden")))
    with pytest.raises(InputError, match="failures"):
        store.add([Reply(requests(2)[0], "answer"), Reply(requests(2)[1], None, "failure")])
    assert store.count() == 0


def test_a_long_reason_is_cut_and_a_long_name_refused(store: GenerationStore) -> None:
    store.add(failures([request()], "x" * 100_000))
    assert len(store.failures([request().key])[request().key]) == 500
    with pytest.raises(InputError, match=r"^model 'mmm\S+' has 201 characters: the store allows 200$"):
        store.add(replies([request(model="m" * 201)]))


def test_statistics_count_everything(store: GenerationStore) -> None:
    assert (store.stats().rows, store.stats().oldest) == (0, None)
    store.add(replies([*requests(3), *(request(text, task="rewrite") for text in "ab"), request(model="other")]))
    store.add([*failures([request("x"), request("y")]), *failures([request("z")], "timed out")])
    found = store.stats()
    groups = [("paraphrase_1", "m", 3), ("paraphrase_1", "other", 1), ("rewrite", "m", 2)]
    assert [(group.task, group.model, group.rows) for group in found.answers] == groups
    failed = [("paraphrase_1", "HTTP 500", 2), ("paraphrase_1", "timed out", 1)]
    assert [(one.task, one.reason, one.rows) for one in found.failures] == failed
    assert (found.rows, found.imports) == (6, 0)
    assert found.bytes > 0
    assert str(found.oldest) <= str(found.newest)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense geheim", "synthesize.store is not a database URL: give for example sqlite:///"),
        ("mysql://me:geheim@host/x", "database 'mysql' is unknown: choose postgresql or sqlite"),
        ("sqlite://", "a store in memory keeps nothing: name a file"),
        ("postgresql://me:geheim@127.0.0.1:1/x", r"postgresql://\*\*\*@127.0.0.1:1/x cannot be opened .*refused"),
        ("postgres://127.0.0.1:1/x?user=me&password=geheim", r"x\?\S*password=\*\*\*\S* cannot be opened"),
    ],
)
def test_a_wrong_url_is_one_line_without_the_password(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        GenerationStore(url)
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"no database, but long enough to be one " * 100)
    with pytest.raises(InputError, match=r"store\.db cannot be opened \(file is not a database\)"):
        GenerationStore(f"sqlite:///{tmp_path / 'store.db'}")
    with pytest.raises(InputError, match="cannot be opened"):
        GenerationStore(f"sqlite:///{tmp_path}")


def test_the_key_depends_on_messages_model_sampling_and_attempt_only() -> None:
    different = [request(), request("a cat"), request(attempt=1), request(model="n")]
    chats = [(("system", "a dog"),), (("user", "a "), ("user", "dog")), (("user", "a"), ("user", " dog"))]
    different += [Request("paraphrase_1", chat, "m", SAMPLING, 0) for chat in chats]
    assert len({one.key for one in different}) == len(different)
    assert request().key == request(task="rewrite").key
