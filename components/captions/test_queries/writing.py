"""Has a language model write queries for captions, checks them by rules, and has a second question judge them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from components.captions.generating.asking import SynthesisCounts, ask
from components.captions.generating.engines import Engine, make_engine
from components.captions.generating.judging import REASON, SAMPLING
from components.captions.generating.questions import Questions, questions_without_block
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import InputRow, Request
from components.captions.test_queries.kinds import QueryKind
from components.captions.validation.rules.probes import Probes
from components.captions.validation.rules.table import add_columns, row_rules
from components.captions.validation.suites import Suites
from components.core.settings import Settings
from components.core.tables.records import key_of
from components.core.tables.written_queries import WrittenQuery
from components.core.text import common_texts, normalised

Caption = tuple[str, str]
"""Image id and caption."""


@dataclass
class Candidate:
    """One answer: the query, or the reason why it is not used."""

    image_id: str
    caption: str
    query: str
    reason: str = ""


class QueryWriter:
    """The model, the judge and the rules of a test set; answers are stored, so that a stopped run resumes."""

    def __init__(self, settings: Settings, store: GenerationStore, probes: Probes, context_length: int) -> None:
        options, synthesize = settings.test_set, settings.synthesize
        assert options.llm is not None
        self._settings, self._store, self._context_length = settings, store, context_length
        # Facts are those of training scenes.
        self._probes, self._suites = replace(probes, facts=None), Suites()
        self.model, self.judge = options.llm, options.judge_llm or options.llm
        self._writes = make_engine(synthesize, self.model)
        self._judges = self._writes if self.judge == self.model else make_engine(synthesize, self.judge)
        self.counts = SynthesisCounts()

    def candidates(self, kind: QueryKind, captions: Sequence[Caption], title: str) -> list[Candidate]:
        """All answers for the captions, in their order, each with its reason if it is rejected."""
        options = self._settings.test_set
        samples = options.paraphrases if kind.name == "paraphrase" else 1
        sampling = {"temperature": options.temperature, "top_p": options.top_p, "max_tokens": options.max_tokens}
        questions = self._questions(kind.task, self._writes, samples=samples, **sampling)
        about = [(image, caption, questions.about(InputRow(image, 0, {"caption": caption}), attempt))
                 for image, caption in captions for attempt in range(samples)]  # fmt: skip
        answers = self._answers(self._writes, [request for *_, request in about], f"{title}: {kind.name}")
        found = [Candidate(image, caption, *_parsed(questions, answers.get(request.key)))
                 for image, caption, request in about]  # fmt: skip
        self._check(kind, found)
        self._judge(kind, [one for one in found if not one.reason], title)
        return found

    def check_failed(self) -> None:
        """Raise `InputError` if more of the questions so far failed than `synthesize.max_failed_share` allows."""
        most = self._settings.synthesize.max_failed_share
        self.counts.check_failed("test_set", most, "synthesize.max_failed_share")

    def written(self, kind: QueryKind, candidates: Iterable[Candidate]) -> list[WrittenQuery]:
        """The accepted ones as rows of the test set."""
        by = (self.model, kind.task, self.judge, kind.judge)
        return [
            WrittenQuery(one.image_id, one.caption, one.query, kind.name, *by) for one in candidates if not one.reason
        ]

    def _questions(self, name: str, engine: Engine, **options: object) -> Questions:
        return questions_without_block(self._settings, name, engine, **options)

    def _answers(self, engine: Engine, requests: Sequence[Request], title: str) -> dict[str, str]:
        self.counts += ask(self._store, engine, requests, title, len(requests))
        return self._store.answers([request.key for request in requests])

    def _check(self, kind: QueryKind, candidates: Sequence[Candidate]) -> None:
        """Set the reasons of the candidates that break a rule of `validate`."""
        answer = kind.rules.answers[0]
        frame = pd.DataFrame(
            {
                "row": range(len(candidates)),
                answer.source: [one.caption for one in candidates],
                answer.column: [None if one.reason else one.query for one in candidates],
                f"rejected_{answer.column}": [one.reason or None for one in candidates],
            },
            dtype=object,
        ).astype({"row": np.int64})
        limits = self._settings.validation.limits(key_of(kind.rules.table)).model_copy(update=dict(kind.limits))
        probes = self._probes.used_for([one.caption for one in candidates])
        constant = _constant(candidates, limits.max_same_share) if answer.is_whole else []
        frame = add_columns(frame, kind.rules, limits, probes, np.array(_repeated(candidates), np.int64), constant)
        rules = row_rules(kind.rules, limits, self._context_length)
        for row, reasons in self._suites.check_rows(kind.name, frame, rules).failures.items():
            candidates[row].reason = ";".join(reasons)

    def _judge(self, kind: QueryKind, candidates: Sequence[Candidate], title: str) -> None:
        """Set the reason of the candidates that the judge does not accept."""
        questions = self._questions(kind.judge, self._judges, **SAMPLING)
        requests = [questions.about(InputRow(one.image_id, 0, {"caption": one.caption, kind.judged: one.query}), 0)
                    for one in candidates]  # fmt: skip
        verdicts = self._answers(self._judges, requests, f"{title}: judge of {kind.name}")
        for one, request in zip(candidates, requests, strict=True):
            if request.key not in verdicts or questions.rejects(verdicts[request.key]):
                one.reason = REASON


def _parsed(questions: Questions, answer: str | None) -> tuple[str, str]:
    """The text of an answer, and the reason why there is none."""
    if answer is None:
        return "", "failed"
    text = questions.task.parse(answer)
    return (text, "") if text else ("", "unparsable")


def _repeated(candidates: Sequence[Candidate]) -> list[int]:
    """The rows of queries that an earlier candidate for the same caption has."""
    seen: set[tuple[str, str, str]] = set()
    rows = []
    for row, one in enumerate(candidates):
        key = (one.image_id, one.caption, normalised(one.query))
        if not one.reason and key in seen:
            rows.append(row)
        seen.add(key)
    return rows


def _constant(candidates: Sequence[Candidate], share: float) -> list[int]:
    """The rows of queries that at least three captions share, and `share` of all captions."""
    least = max(3, share * len({one.caption for one in candidates}))
    common = common_texts(((one.query, one.caption) for one in candidates), least)
    return [row for row, one in enumerate(candidates) if normalised(one.query) in common]
