"""A second model judges whether answers mean the same as their sources (`synthesize.tasks.*.judge_llm`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from more_itertools import batched

from components.captions.generating.asking import Pair, SynthesisCounts, ask
from components.captions.generating.engines import make_engine
from components.captions.generating.questions import questions_without_block
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import InputRow, Request
from components.core.settings import Settings

REASON = "judge"
"""Reason of an answer that the judge does not accept."""
SAMPLING = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 8}
_BLOCK = 1000


class MeaningJudge:
    """Accepts an answer if it means the same as its source and the source the same as the answer.

    The model judges both directions with prompt task `judge_paraphrase`; the second only after a "yes" to the first.
    """

    def __init__(self, settings: Settings, llm: str) -> None:
        """Take the model `synthesize.llms.<llm>`; raises `InputError` if there is no such model."""
        self.llm, self.engine = llm, make_engine(settings.synthesize, llm)
        self._questions = questions_without_block(settings, "judge_paraphrase", self.engine, **SAMPLING)

    def ask(
        self, store: GenerationStore, pairs: Callable[[], Iterable[Pair]], title: str, most: int | None
    ) -> SynthesisCounts:
        """Have the verdicts on `pairs`, which are read twice, in the store."""
        there = (self._there(pair) for pair in pairs())
        counts = ask(store, self.engine, there, f"{title}: judge", most)
        return counts + ask(store, self.engine, self._second(store, pairs()), f"{title}: judge, back", None)

    def faults(self, store: GenerationStore, pairs: Sequence[Pair]) -> list[str | None]:
        """For each pair None if both answers are "yes", else the reason."""
        both = [(self._there(pair).key, self._there(pair[::-1]).key) for pair in pairs]
        found = store.answers({key for keys in both for key in keys})
        return [next(filter(None, (self._fault(found.get(key)) for key in keys)), None) for keys in both]

    def _fault(self, verdict: str | None) -> str | None:
        if verdict is None:
            return f"{REASON}: no answer"
        return REASON if self._questions.rejects(verdict) else None

    def _there(self, pair: Pair) -> Request:
        return self._questions.about(InputRow("", 0, {"caption": pair[0], "paraphrase": pair[1]}), 0)

    def _second(self, store: GenerationStore, pairs: Iterable[Pair]) -> Iterator[Request]:
        for block in batched(pairs, _BLOCK):
            verdicts = store.answers({self._there(pair).key for pair in block})
            for pair in block:
                if self._fault(verdicts.get(self._there(pair).key)) is None:
                    yield self._there(pair[::-1])
