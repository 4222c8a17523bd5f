"""Counts of questions: those of the table, less those with an answer in the store or the replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from components.captions.generating.engines import engine_of
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request
from components.core.settings import Settings
from components.core.tables.records import PAIRS
from components.costing.cost import TaskQuestions, count_questions

CAPTIONS = 12
TABLE = Path("data/pairs/train.parquet")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    """Settings with an empty store and replay, and with a table of twelve captions if `table` is set."""
    monkeypatch.chdir(tmp_path)

    def make(*, table: bool = True, **task: Any) -> Settings:
        if table:
            ids = [str(number) for number in range(CAPTIONS)]
            captions = [f"a dog and {number} cats on a red sofa" for number in range(CAPTIONS)]
            rows = {"id": ids, "image_id": ids, "image": [b"i"] * CAPTIONS, "caption": captions}
            PAIRS.write(TABLE, rows | {"facts": [None] * CAPTIONS})
        raw_params["synthesize"] |= {
            "store": f"sqlite:///{tmp_path}/store.db",
            "cached_answers": str(tmp_path / "replay.parquet"),
            "max_captions": CAPTIONS,
            "llms": {name: {"engine": "local"} for name in ("student", *raw_params["synthesize"]["llms"])},
            "default_llm": "student",
        }
        raw_params["synthesize"]["tasks"]["paraphrase_1"] |= {"always_ask_first": 0, "samples": 2} | task
        return Settings.model_validate(raw_params)

    return make


def _count(settings: Settings, task: str = "paraphrase_1") -> TaskQuestions:
    return count_questions(settings)[task]


def _questions(settings: Settings) -> Iterator[Request]:
    return questions_of(settings, "paraphrase_1", engine_of(settings.synthesize, "paraphrase_1")).read()


def _answer(url: str, requests: list[Request]) -> GenerationStore:
    store = GenerationStore(url)
    store.add([Reply(request, "a hound") for request in requests])
    return store


def _replay(folder: Path, requests: list[Request]) -> None:
    store = _answer(f"sqlite:///{folder}/other.db", requests)
    store.export_parquet(folder / "replay.parquet")
    store.close()


def test_without_answers_all_questions_are_open(made: Callable[..., Settings]) -> None:
    settings = made(max_tokens=30)
    found = _count(settings)
    characters = sum(len(content) for question in _questions(settings) for _, content in question.chat)
    assert (found.all, found.open, found.sure) == (24, 24, True)
    assert found.tokens_in == pytest.approx(characters / 4, abs=1)
    assert found.tokens_out == 24 * 30
    assert not Path("store.db").exists()


def test_questions_with_an_answer_in_the_store_or_the_replay_are_not_open(
    made: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = made()
    questions = list(_questions(settings))
    _answer(settings.synthesize.store, questions[:6]).close()
    assert _count(settings).open == 18
    _replay(tmp_path, questions[4:12])
    assert _count(settings).open == 12


def test_always_ask_first_counts_although_the_replay_has_answers(made: Callable[..., Settings], tmp_path: Path) -> None:
    settings = made(always_ask_first=5)
    questions = list(_questions(settings))
    _replay(tmp_path, questions)
    assert _count(settings).open == 5
    _answer(settings.synthesize.store, questions).close()
    assert _count(settings).open == 0


def test_without_the_table_numbers_come_from_the_settings_and_the_replay(
    made: Callable[..., Settings], tmp_path: Path
) -> None:
    there = made()
    _replay(tmp_path, list(_questions(there))[:6])
    TABLE.unlink()
    found = _count(made(table=False))
    assert (found.all, found.open, found.sure) == (24, 18, False)
    assert found.tokens_in > 0
    # A task about answers has a question about each of them.
    assert _count(made(table=False), "paraphrase_2").all == 24
