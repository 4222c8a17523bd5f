"""The generation store: nothing twice, nothing lost, the same after export and import."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.captions.store import GenerationStore, Request, Sampling
from components.errors import InputError

SAMPLING = Sampling(1.0, 0.1, 40)


def _request(text: str = "a dog", attempt: int = 0, model: str = "m", sampling: Sampling = SAMPLING) -> Request:
    return Request("paraphrase_1", (("user", text),), model, sampling, attempt)


def _store(folder: Path, name: str = "store") -> GenerationStore:
    return GenerationStore(f"sqlite:///{folder / name}.db")


def test_the_key_depends_on_prompt_model_sampling_and_attempt_alone() -> None:
    different = [
        _request(),
        _request("a cat"),
        _request(attempt=1),
        _request(model="n"),
        _request(sampling=Sampling(0.9, 0.1, 40)),
        Request("paraphrase_1", (("system", "a dog"),), "m", SAMPLING, 0),
    ]
    assert len({request.key for request in different}) == len(different)
    assert _request().key == _request().key


def test_prompts_that_differ_only_in_where_messages_split_differ() -> None:
    one = Request("t", (("user", "ab"), ("user", "c")), "m", SAMPLING, 0)
    other = Request("t", (("user", "a"), ("user", "bc")), "m", SAMPLING, 0)
    assert one.key != other.key


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=30))
def test_export_and_import_keep_every_answer(answers: dict[str, str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, other = _store(folder), _store(folder, "other")
        store.add(_request(text).row(answer) for text, answer in answers.items())
        assert store.export_parquet(folder / "export.parquet") == len(answers)
        assert other.import_parquet(folder / "export.parquet") == len(answers)
        assert other.import_parquet(folder / "export.parquet") == 0
        expected = {_request(text).key: answer for text, answer in answers.items()}
        assert other.answers(list(expected)) == expected
        store.close()
        other.close()


def test_an_answer_is_never_replaced(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.add([_request().row("first")])
    store.add([_request().row("second"), _request("a cat").row("third")])
    assert store.answers([_request().key, _request("a cat").key]) == {
        _request().key: "first",
        _request("a cat").key: "third",
    }
    assert store.count() == 2


def test_answers_survive_closing_and_many_keys_are_found(tmp_path: Path) -> None:
    store = _store(tmp_path)
    requests = [_request(str(number)) for number in range(1203)]
    store.add(request.row("x") for request in requests)
    store.close()
    assert len(_store(tmp_path).answers([request.key for request in requests])) == 1203


def test_what_is_no_export_is_named(tmp_path: Path) -> None:
    store = _store(tmp_path)
    (tmp_path / "bad.parquet").write_text("nonsense")
    with pytest.raises(InputError, match=r"bad\.parquet is no export"):
        store.import_parquet(tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"gone\.parquet is missing"):
        store.import_parquet(tmp_path / "gone.parquet")


def test_exports_carry_their_provenance(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.add([_request().row("answer")])
    store.export_parquet(tmp_path / "export.parquet")
    row = pq.read_table(tmp_path / "export.parquet").to_pylist()[0]
    assert row["model"] == "m"
    assert row["prompt_sha256"] == _request().prompt_sha256
    assert row["created"].startswith("20")
