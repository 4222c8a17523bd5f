"""Counts of questions: those of the table, less those with an answer in the store or the replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.captions.generating.engines import engine_of
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply
from components.core.settings import Settings
from components.core.tables.records import PAIRS
from components.costing.cost import TaskQuestions, count_questions

CAPTIONS = 12
TABLE = Path("data/pairs/train.parquet")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    """Settings with an empty store and replay, and a table of twelve captions."""
    monkeypatch.chdir(tmp_path)
    ids = [str(number) for number in range(CAPTIONS)]
    captions = [f"a dog and {number} cats on a red sofa" for number in range(CAPTIONS)]
    rows = {"id": ids, "image_id": ids, "image": [b"i"] * CAPTIONS, "caption": captions, "facts": [None] * CAPTIONS}
    PAIRS.write(TABLE, rows)
    raw_params["synthesize"] |= {
        "store": f"sqlite:///{tmp_path}/store.db",
        "cached_answers": str(tmp_path / "replay.parquet"),
        "max_captions": CAPTIONS,
        "llms": {name: {"engine": "local"} for name in ("student", *raw_params["synthesize"]["llms"])},
        "default_llm": "student",
    }

    def make(**task: Any) -> Settings:
        raw_params["synthesize"]["tasks"]["paraphrase_1"] |= {"always_ask_first": 0, "samples": 2} | task
        return Settings.model_validate(raw_params)

    return make


def _count(settings: Settings, task: str = "paraphrase_1") -> TaskQuestions:
    return count_questions(settings)[task]


def _answer(settings: Settings, first: int, last: int, replay: Path | None = None) -> None:
    """Answer some of the questions, in the store or in the `replay`."""
    questions = questions_of(settings, "paraphrase_1", engine_of(settings.synthesize, "paraphrase_1")).read()
    store = GenerationStore(f"sqlite:///{replay}.db" if replay else settings.synthesize.store)
    store.add([Reply(request, "a hound") for request in list(questions)[first:last]])
    if replay:
        store.export_parquet(replay)
    store.close()


def test_questions_without_an_answer_in_the_store_or_the_replay_are_open(
    made: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = made(max_tokens=30)
    found = _count(settings)
    request = questions_of(settings, "paraphrase_1", engine_of(settings.synthesize, "paraphrase_1")).read()
    characters = sum(len(content) for question in request for _, content in question.chat)
    assert (found.all, found.open, found.sure) == (24, 24, True)
    assert found.tokens_in == pytest.approx(characters / 4, abs=1)
    assert found.tokens_out == 24 * 30
    assert not Path("store.db").exists()
    _answer(settings, 0, 6)
    assert _count(settings).open == 18
    _answer(settings, 4, 12, tmp_path / "replay.parquet")
    assert _count(settings).open == 12
    (tmp_path / "store.db").unlink()
    _answer(settings, 0, 24, tmp_path / "replay.parquet")
    assert _count(made(always_ask_first=5)).open == 5, "the model answers the first, whatever the replay has"
    _answer(settings, 0, 24)
    assert _count(made(always_ask_first=5)).open == 0


def test_without_the_table_numbers_come_from_the_settings_and_the_replay(
    made: Callable[..., Settings], tmp_path: Path
) -> None:
    _answer(made(), 0, 6, tmp_path / "replay.parquet")
    TABLE.unlink()
    found = _count(made())
    assert (found.all, found.open, found.sure) == (24, 18, False)
    assert found.tokens_in > 0
    # A task about answers has a question about each of them.
    assert _count(made(), "paraphrase_2").all == 24
