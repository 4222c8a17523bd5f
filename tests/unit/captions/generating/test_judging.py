"""A judge accepts an answer that means the same as its source, in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from components.captions.generating import asking
from components.captions.generating.asking import MeaningJudge
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request
from components.core.settings import Settings
from components.core.system.errors import InputError

SAME = {
    ("a dog", "a hound"): "Yes",
    ("a hound", "a dog"): "Yes",
    ("a dog", "a wet dog"): "No",
    ("a wet dog", "a dog"): "Yes",
    ("a cat", "it is hot"): "Perhaps",
}


class Model:
    """Knows which text follows from which."""

    model = "judge-1"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for request in requests:
            first, second = re.findall(r'"([^"]*)"', request.messages[-1]["content"])[:2]
            self.asked.append((first, second))
            verdict = SAME.get((first, second))
            yield [Reply(request, verdict, None if verdict else "HTTP 500")]


def test_both_directions_must_hold_and_each_is_asked_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    monkeypatch.setattr(asking, "make_engine", lambda _settings, _name: model)
    judge = MeaningJudge(settings, "student")
    pairs = [("a dog", "a hound"), ("a wet dog", "a dog"), ("a cat", "it is hot"), ("a cow", "a bull"),
             ("a dog", "a hound")]  # fmt: skip
    with closing(GenerationStore(f"sqlite:///{tmp_path / 'store.db'}")) as store:
        counts = judge.ask(store, lambda: pairs, "paraphrase_1", len(pairs))
        assert judge.faults(store, pairs) == [None, "judge", "judge", "judge: no answer", None]
        assert (counts.generated, counts.failed) == (5, 1)
        # The way back of what is rejected is not asked.
        assert sorted(model.asked) == sorted(
            [("a dog", "a hound"), ("a hound", "a dog"), ("a wet dog", "a dog"), ("a dog", "a wet dog"),
             ("a cat", "it is hot"), ("a cow", "a bull")]
        )  # fmt: skip
        judge.ask(store, lambda: pairs, "paraphrase_1", len(pairs))
        # A failure is repeated.
        assert model.asked[6:] == [("a cow", "a bull")]


def test_answers_that_mean_something_else_have_no_judge(settings: Settings) -> None:
    block = settings.synthesize
    task = block.tasks["paraphrase_1"].model_copy(update={"judge_llm": "student"})
    tasks = {"paraphrase_1": task, "negate_semclip": task}
    settings = settings.model_copy(update={"synthesize": block.model_copy(update={"tasks": tasks})})
    questions_of(settings, "paraphrase_1", Model())
    with pytest.raises(InputError, match=r"tasks\.negate_semclip\.judge_llm: .* remove the key"):
        questions_of(settings, "negate_semclip", Model())
