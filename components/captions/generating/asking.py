"""Sends unanswered questions to an engine, and to a judge, and stores the replies; writes the table of answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from more_itertools import batched

from components.captions.generating.engines import Engine, make_engine
from components.captions.generating.questions import Questions, questions_without_block
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import InputRow, Request
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.core.tables.records import GENERATIONS, SKIPPED
from components.core.tables.work_shard import Shard

REASON = "judge"
"""Reason of an answer that the judge does not accept."""
SAMPLING = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 8}
_LOOK_UP = 256
"""Questions looked up in the store together."""
_READ, _BLOCK = 2_000, 10_000
"""Answers read together, and rows of the table written together."""
Row = dict[str, object]
Outcome = tuple[Request, str | None, str | None]
"""A question, its stored answer, and the reason why it has none."""
Pair = tuple[str, str]
"""Source and answer."""
Faults = Callable[[Sequence[Pair]], Sequence[str | None]]
"""For each pair None, or the reason why its answer is rejected."""


@dataclass
class SynthesisCounts:
    """Results of a run by number of questions; `skipped` are rows of inputs that the task does not accept.

    Tokens are those that a server has counted; `cost` is theirs, 0 without prices.
    """

    replayed: int = 0
    generated: int = 0
    failed: int = 0
    rejected: int = 0
    skipped: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0

    def __str__(self) -> str:
        counts = {name: count for name, count in vars(self).items() if not name.startswith(("tokens", "cost"))}
        return ", ".join(f"{name} {count}" for name, count in counts.items())

    def __add__(self, other: SynthesisCounts) -> SynthesisCounts:
        return SynthesisCounts(**{name: count + getattr(other, name) for name, count in vars(self).items()})

    @property
    def total(self) -> int:
        """Number of questions."""
        return self.replayed + self.generated + self.failed

    def check_failed(self, title: str, most: float, setting: str = "") -> None:
        """Raise `InputError` if more than a share `most` of the questions failed, which `setting` may raise."""
        if self.failed > most * self.total:
            more = f", or raise {setting} ({most:g})" if setting else ""
            raise InputError(
                f"{title}: {self.failed:,} of {self.total:,} questions failed (reasons: `cliptune answers stats`): run "
                f"the command again, which repeats only these{more}"
            )


def ask(
    store: GenerationStore, engine: Engine, requests: Iterable[Request], title: str, total: int | None
) -> SynthesisCounts:
    """Have `engine` answer every request that has no stored answer, and store each batch of replies as it arrives.

    Memory does not grow with the number of requests. When it returns, the store has an answer or a failure for every
    request; after a kill, a second run sends only the requests that have no answer yet. Workers may share the store:
    an answer is never stored twice, but two that send the same question at the same time both pay for it.
    """
    counts = SynthesisCounts()
    sent: set[str] = set()
    """Keys of questions that were sent and have no stored answer: in flight, or failed."""
    with bar(title, total, "question") as progress:

        def unanswered() -> Iterator[Request]:
            for block in batched(requests, _LOOK_UP):
                new = {request.key: request for request in block if request.key not in sent}
                for key in store.answers(new):
                    del new[key]
                sent.update(new)
                counts.replayed += len(block) - len(new)
                progress.update(len(block) - len(new))
                yield from new.values()

        for replies in engine.answer(unanswered()):
            store.add(replies)
            answered = [reply.request.key for reply in replies if reply.answer is not None]
            sent.difference_update(answered)
            counts.failed += len(replies) - len(answered)
            counts.generated += len(answered)
            counts.tokens_in += sum(reply.tokens[0] for reply in replies)
            counts.tokens_out += sum(reply.tokens[1] for reply in replies)
            progress.update(len(replies))
    return counts


def outcomes(store: GenerationStore, requests: Iterable[Request]) -> Iterator[Outcome]:
    """Each request with its stored answer, or the reason why it has none, in order."""
    for block in batched(requests, _READ):
        keys = list(dict.fromkeys(request.key for request in block))
        answers = store.answers(keys)
        failures = store.failures([key for key in keys if key not in answers])
        for request in block:
            yield request, answers.get(request.key), failures.get(request.key)


def stored_texts(
    store: GenerationStore, questions: Questions, shard: Shard | None = None
) -> Iterator[tuple[InputRow, str | None]]:
    """The inputs of every question and the text of its stored answer, None without a usable one, in order."""
    for question, answer, _ in outcomes(store, questions.read(shard)):
        yield question.source, None if answer is None else questions.task.parse(answer)


def usable_pairs(store: GenerationStore, questions: Questions, shard: Shard | None = None) -> Iterator[Pair]:
    """The source and the text of every usable answer."""
    source = questions.task.inputs[0]
    return ((row.inputs[source], text) for row, text in stored_texts(store, questions, shard) if text is not None)


def revisions(store: GenerationStore, questions: Questions, shard: Shard | None = None) -> Iterator[Request]:
    """The judged task's questions for the candidates that the judge does not accept."""
    for question, verdict, _ in outcomes(store, questions.read(shard)):
        if questions.rejects(verdict):
            yield questions.revision(question)


def write_answers(path: Path, store: GenerationStore, questions: Questions, faults: Faults | None = None) -> int:
    """Write the table block by block; returns the number of questions without a usable answer.

    Args:
        faults: the reasons of a judge that reject usable answers.
    """
    rejected = 0
    with GENERATIONS.writer(path, lambda: {SKIPPED: json.dumps(dict(sorted(questions.skipped.items())))}) as append:
        for block in batched(questions.read(), _BLOCK):
            rows = _rows(store, questions, block)
            if faults is not None:
                _reject(rows, faults)
            append({name: [row.get(name) for row in rows] for name in GENERATIONS.schema.names})
            rejected += sum(not row["accepted"] for row in rows)
    return rejected


def _rows(store: GenerationStore, questions: Questions, block: Sequence[Request]) -> list[Row]:
    found = list(outcomes(store, block))
    if questions.task.judges is None:
        return [_row(questions, one[0], _parsed(questions, questions.task, one)) for one in found]
    rejected = [question for question, verdict, _ in found if questions.rejects(verdict)]
    revisions = outcomes(store, map(questions.revision, rejected))
    revised = dict(zip((question.key for question in rejected), revisions, strict=True))
    return [_row(questions, one[0], _judged(questions, one, revised.get(one[0].key))) for one in found]


def _reject(rows: Sequence[Row], faults: Faults) -> None:
    """Mark the rows whose text a judge does not accept."""
    usable = [row for row in rows if row["accepted"]]
    reasons = faults([(str(row["source"]), str(row["text"])) for row in usable])
    for row, reason in zip(usable, reasons, strict=True):
        row |= {"accepted": reason is None, "reason": reason, "verdict": "yes" if reason is None else "no"}


def _parsed(questions: Questions, task: PromptTask, found: Outcome) -> Row:
    """Columns `text`, `accepted` and `reason` of an answer to `task`."""
    request, answer, failure = found
    if answer is not None:
        text = task.parse(answer)
        return {"text": text, "accepted": text is not None, "reason": None if text is not None else "unparsable"}
    if failure is not None:
        return {"text": None, "accepted": False, "reason": f"failed: {failure}"}
    name = questions.task.name
    raise InputError(
        f"generation store: an answer to task '{name}' is missing (key {request.key[:12]}...): run "
        f"`dvc repro synthesize@{name}` again, and do not prune a store that is in use"
    )


def _judged(questions: Questions, found: Outcome, revised: Outcome | None) -> Row:
    """The candidate, or the judge's text instead, which is `revised`."""
    if revised is not None:
        rewritten = _parsed(questions, find_task(str(questions.task.judges)), revised)
        return {**rewritten, "verdict": "no", "written_by": "judge"}
    verdict = _parsed(questions, questions.task, found)
    if verdict["text"] is None:
        return verdict
    candidate = found[0].source.inputs[questions.task.inputs[1]]
    return {"text": candidate, "accepted": True, "reason": None, "verdict": "yes", "written_by": "generator"}


def _row(questions: Questions, question: Request, outcome: Row) -> Row:
    inputs, source = [question.source.inputs[name] for name in questions.task.inputs], question.source
    return {
        "id": source.id,
        "sample": question.sample,
        "source": inputs[0],
        "key": question.key,
        "other_id": source.other_id,
        "other_source": inputs[-1] if source.other_id is not None else None,
        **outcome,
    }


class MeaningJudge:
    """Accepts an answer if it means the same as its source and the source the same as the answer.

    The model judges both directions with prompt task `judge_paraphrase`; the second only after a "yes" to the first.
    """

    def __init__(self, settings: Settings, llm: str) -> None:
        """Take the model `synthesize.llms.<llm>`; raises `InputError` for an unknown name."""
        self.llm, self.engine = llm, make_engine(settings.synthesize, llm)
        self._questions = questions_without_block(settings, "judge_paraphrase", self.engine, **SAMPLING)

    def ask(
        self, store: GenerationStore, pairs: Callable[[], Iterable[Pair]], title: str, most: int | None
    ) -> SynthesisCounts:
        """Have the verdicts on `pairs`, which are read twice, in the store."""
        counts = ask(store, self.engine, map(self.there, pairs()), f"{title}: judge", most)
        return counts + ask(store, self.engine, self.back(store, pairs()), f"{title}: judge, back", None)

    def faults(self, store: GenerationStore, pairs: Sequence[Pair]) -> list[str | None]:
        """For each pair None if both answers are "yes", else the reason."""
        both = [(self.there(pair).key, self.there(pair[::-1]).key) for pair in pairs]
        found = store.answers({key for keys in both for key in keys})
        return [next(filter(None, (self._fault(found.get(key)) for key in keys)), None) for keys in both]

    def there(self, pair: Pair) -> Request:
        """The question whether the answer means the same as its source."""
        return self._questions.about(InputRow("", 0, {"caption": pair[0], "paraphrase": pair[1]}), 0)

    def back(self, store: GenerationStore, pairs: Iterable[Pair]) -> Iterator[Request]:
        """The questions in the other direction, about the pairs whose first verdict is "yes"."""
        for there, verdict, _ in outcomes(store, map(self.there, pairs)):
            if self._fault(verdict) is None:
                source, answer = there.source.inputs.values()
                yield self.there((answer, source))

    def _fault(self, verdict: str | None) -> str | None:
        if verdict is None:
            return f"{REASON}: no answer"
        return REASON if self._questions.rejects(verdict) else None
