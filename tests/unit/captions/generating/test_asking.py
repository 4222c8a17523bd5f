"""Questions name their language, each is sent once and its reply stored, and a judge asks in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.captions.generating import asking
from components.captions.generating.asking import MeaningJudge, SynthesisCounts, ask
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import InputRow, Reply, Request
from components.core.settings import Settings
from components.core.system.errors import InputError
from tests.support.fake_engine import FakeEngine, quoted
from tests.support.store_rows import requests


@pytest.fixture
def store(tmp_path: Path) -> GenerationStore:
    return GenerationStore(f"sqlite:///{tmp_path / 'store.db'}")


def test_questions_are_taken_block_by_block_as_the_engine_wants_them(store: GenerationStore) -> None:
    read: list[int] = []

    def wanted() -> Iterator[Request]:
        for number, request in enumerate(requests(2000)):
            read.append(number)
            yield request

    class Curious(FakeEngine):
        def answer(self, wanted: Iterable[Request]) -> Iterator[list[Reply]]:
            for batch in super().answer(wanted):
                assert len(read) <= len(self.asked) + asking._LOOK_UP
                yield batch

    engine = Curious(lambda _: "an answer", batch=8)
    assert ask(store, engine, wanted(), "t", None) == SynthesisCounts(generated=2000)
    assert len(engine.asked) == 2000


def test_a_question_is_sent_once_in_a_run_and_a_failed_one_again_in_the_next(store: GenerationStore) -> None:
    for text, first in ((None, SynthesisCounts(failed=300)), ("an answer", SynthesisCounts(generated=300))):
        engine = FakeEngine(lambda _, text=text: text, batch=8)
        counts = ask(store, engine, [*requests(300), *requests(300)], "t", None)
        assert (counts, len(engine.asked)) == (first + SynthesisCounts(replayed=300), 300)


def test_an_error_of_the_store_reaches_the_caller(store: GenerationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_replies: object) -> None:
        raise InputError("generation store failed")

    monkeypatch.setattr(store, "add", refuse)
    engine = FakeEngine(lambda _: "an answer", batch=8)
    with pytest.raises(InputError, match="generation store failed"):
        ask(store, engine, requests(20), "t", None)
    assert len(engine.asked) <= 16


SAME: dict[tuple[str, ...], str] = {
    ("a dog", "a hound"): "Yes",
    ("a hound", "a dog"): "Yes",
    ("a dog", "a wet dog"): "No",
    ("a wet dog", "a dog"): "Yes",
    ("a cat", "it is hot"): "Perhaps",
}


def _pair(request: Request) -> tuple[str, ...]:
    return tuple(quoted(request)[:2])


def test_both_directions_must_hold(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeEngine(lambda request: SAME.get(_pair(request)))
    monkeypatch.setattr(asking, "make_engine", lambda _settings, _name: model)
    judge = MeaningJudge(settings, "student")
    pairs = [("a dog", "a hound"), ("a wet dog", "a dog"), ("a cat", "it is hot"), ("a cow", "a bull"),
             ("a dog", "a hound")]  # fmt: skip
    with closing(GenerationStore(f"sqlite:///{tmp_path / 'store.db'}")) as store:
        counts = judge.ask(store, lambda: pairs, "paraphrase_1", len(pairs))
        assert judge.faults(store, pairs) == [None, "judge", "judge", "judge: no answer", None]
        assert (counts.generated, counts.failed) == (5, 1)
        # The way back of what is rejected is not asked.
        assert sorted(map(_pair, model.asked)) == sorted(
            [("a dog", "a hound"), ("a hound", "a dog"), ("a wet dog", "a dog"), ("a dog", "a wet dog"),
             ("a cat", "it is hot"), ("a cow", "a bull")]
        )  # fmt: skip
        judge.ask(store, lambda: pairs, "paraphrase_1", len(pairs))
        # A failure is repeated.
        assert list(map(_pair, model.asked[6:])) == [("a cow", "a bull")]


ENGINE: Any = SimpleNamespace(model="m")


def test_questions_name_the_language_and_only_equal_meanings_have_a_judge(settings: Settings) -> None:
    for language, caption, ending in [
        ("en", "ein Hund", ""),
        ("de", "ein Hund", " Answer in German."),
        # Of several languages, and of any, that of the caption; the first one where it is not clear.
        (("de", "en"), "zwei Kinder im Gras", " Answer in German."),
        (("en", "de"), "zwei Kinder im Gras", " Answer in German."),
        (("de", "en"), "two children on grass", ""),
        (("en", "de"), "two children on grass", ""),
        (("ja", "de"), "42", " Answer in Japanese."),
        (("en", "de"), "42", ""),
        (None, "Blaue Winterjacke für Herren", " Answer in German."),
        (None, "赤い犬がソファの上で寝ている", " Answer in Japanese."),
        (None, "a blue winter jacket for men", ""),
        (None, "42", ""),
    ]:
        validation = settings.validation.model_copy(update={"language": language})
        questions = questions_of(settings.model_copy(update={"validation": validation}), "paraphrase_1", ENGINE)
        (_, question) = questions.about(InputRow("a", 0, {"caption": caption}), 0).chat[-1]
        assert question == f'Paraphrase the given caption "{caption}" concisely while preserving the meaning.{ending}'
        judge = questions_of(settings.model_copy(update={"validation": validation}), "judge_paraphrase", ENGINE)
        row = InputRow("a", 0, {"caption": "ein Hund", "paraphrase": "ein Hund"})
        assert "Answer in" not in judge.about(row, 0).chat[-1][1]
    block = settings.synthesize
    task = block.tasks["paraphrase_1"].model_copy(update={"judge_llm": "student"})
    tasks = {"paraphrase_1": task, "negate_semclip": task}
    settings = settings.model_copy(update={"synthesize": block.model_copy(update={"tasks": tasks})})
    questions_of(settings, "paraphrase_1", ENGINE)
    with pytest.raises(InputError, match=r"tasks\.negate_semclip\.judge_llm: .* remove the key"):
        questions_of(settings, "negate_semclip", ENGINE)
