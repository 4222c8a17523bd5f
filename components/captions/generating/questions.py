"""The questions of a prompt task, made from its rows of inputs and its settings, or from a text that a person types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from components.captions.generating.engines import Engine, engine_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.readers import Accepts, Ask, caption_words
from components.captions.prompting.request import InputRow, Request, Sampling, disarm
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings, Task
from components.core.system.errors import InputError
from components.core.tables.work_shard import Shard
from components.core.text.languages import ENGLISH, language_name, language_of


@dataclass(frozen=True)
class Questions:
    """The questions of one task of params.yaml.

    `skipped` counts the rows that the task does not accept, by reason, and is complete once the questions were read.
    """

    task: PromptTask
    options: Task
    settings: Settings
    model: str
    answerable: Callable[[Request], bool] = field(default=lambda _question: True)
    """Which questions the engine can answer, see `Engine`; the others are skipped."""
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def most(self) -> int:
        """Upper bound of the number of questions: about captions, pairs of captions or answers of another task."""
        block, options, name = self.settings.synthesize, self.options, self.task.name
        rows, samples = options.pairs or options.max_captions or block.max_captions, options.samples
        while (before := block.before(name)) is not None:
            name, options = before, block.tasks[before]
            samples *= options.samples
            rows = min(rows, options.pairs or options.max_captions or block.max_captions)
        return rows * samples

    def read(self, shard: Shard | None = None) -> Iterator[Request]:
        """The questions in order, read lazily; `skipped` is counted again."""
        self.skipped.clear()
        limit = self.options.max_captions or self.settings.synthesize.max_captions
        pictures = self.options.pictures and self.task.pictures
        seed, options = self.settings.dataset.seed, self.options
        ask = Ask(limit, seed, options.pairs, options.one_per_image, pictures, self.skipped)
        sources = self.task.reads(self.options.input, self._accepts(), ask)
        shard = shard or Shard()
        for source in islice(sources, shard.number, None, shard.of):
            for question in (self.about(source, attempt) for attempt in range(self.options.samples)):
                if self.answerable(question):
                    yield question
                else:
                    self.skipped["the table has no answer"] += 1

    def about(self, source: InputRow, attempt: int) -> Request:
        """The question about one row of inputs; `attempt` counts from 0."""
        sample = source.sample * self.options.samples + attempt
        return self._request(self.task, self.options, source, attempt, sample)

    def _accepts(self) -> Accepts:
        words = self.options.caption_length
        if words is None:
            return self.task.accepts
        if "caption" not in self.task.inputs:
            raise InputError(
                f"params.yaml: synthesize.tasks.{self.task.name}.caption_length: the task does not read "
                f"captions: remove the key"
            )
        return caption_words(*words)

    def rejects(self, verdict: str | None) -> bool:
        """Whether a judge's answer is not "yes"; as in SemCLIP's released code, one without either word rejects."""
        return verdict is not None and self.task.parse(verdict) != "yes"

    def revision(self, question: Request) -> Request:
        """The question that the judge answers after it rejected a candidate: the judged task's question.

        Its attempt is one that the generator never makes, so that a judge that is also the generator answers again.
        """
        assert self.task.judges is not None
        judged = self.settings.synthesize.tasks[self.task.judges]
        attempt = judged.samples + question.sample
        return self._request(find_task(self.task.judges), judged, question.source, attempt, question.sample)

    def _request(self, task: PromptTask, options: Task, source: InputRow, attempt: int, sample: int) -> Request:
        inputs = {name: disarm(text) for name, text in source.inputs.items()}
        chat = tuple((message["role"], message["content"]) for message in task.render(inputs, options.prompt))
        if options.prompt == "own" and task.writes_text:
            chat = _in_language(chat, language_of(source.inputs[task.inputs[0]], self.settings.validation.languages))
        sampling = Sampling(options.temperature, options.top_p, options.max_tokens)
        return Request(task.name, chat, self.model, sampling, attempt, source.pictures, task.parse_cut, source, sample)


def _in_language(chat: tuple[tuple[str, str], ...], language: str | None) -> tuple[tuple[str, str], ...]:
    """The chat with the language of its answer; unchanged for English, and for a language that is not known."""
    if language in (None, ENGLISH):
        return chat
    *before, (role, question) = chat
    return (*before, (role, f"{question} Answer in {language_name(language)}."))


def questions_of(settings: Settings, name: str, engine: Engine) -> Questions:
    """The questions of the task that params.yaml has under `synthesize.tasks.<name>`."""
    tasks = settings.synthesize.tasks
    if name not in tasks:
        raise InputError(f"params.yaml has no block synthesize.tasks.{name}: add one")
    task = find_task(name)
    if task.judges is not None and task.judges not in tasks:
        raise InputError(
            f"params.yaml: task '{name}' judges '{task.judges}': add a block synthesize.tasks.{task.judges}"
        )
    if tasks[name].judge_llm is not None and not task.keeps_meaning:
        raise InputError(
            f"params.yaml: synthesize.tasks.{name}.judge_llm: the judge compares meanings, and an answer of this task "
            "means something else than its caption: remove the key"
        )
    found = Questions(task, tasks[name], settings, engine.model)
    return replace(found, answerable=getattr(engine, "has", found.answerable))


def first_questions(settings: Settings, name: str, engine: Engine, captions: int, **changes: object) -> Questions:
    """One question about each of a task's first captions, the first that stage `synthesize` has about it.

    `changes` are other options than those of params.yaml.
    """
    questions = questions_of(settings, name, engine)
    changes |= {"samples": 1, "max_captions": captions, "pairs": None}
    return replace(questions, options=questions.options.model_copy(update=changes))


def questions_without_block(settings: Settings, name: str, engine: Engine, **options: object) -> Questions:
    """The questions of a task with these `options`, whatever params.yaml has under `synthesize.tasks`."""
    task = Task.model_validate({"table": name, "input": Path(), **options})
    return Questions(find_task(name), task, settings, engine.model)


def import_replay(store: GenerationStore, settings: Settings) -> None:
    """Merge `synthesize.cached_answers` into a store that never imported it, except for answers to live questions."""
    if settings.synthesize.cached_answers is not None:
        store.import_once(settings.synthesize.cached_answers, lambda: _asked_live(settings))


def _asked_live(settings: Settings) -> set[str]:
    """Keys of the questions that a model answers although the replay has their answers."""
    keys: set[str] = set()
    for name, options in settings.synthesize.tasks.items():
        if options.always_ask_first:
            try:
                questions = questions_of(settings, name, engine_of(settings.synthesize, name))
            except InputError:
                # An untrained student has answered nothing. The task's own run reports any other error.
                continue
            keys.update(question.key for question in islice(questions.read(), options.always_ask_first))
    return keys


TASK = "paraphrase_1"


class ParaphraseWriter:
    """Paraphrases by the language model of task `paraphrase_1`, which is loaded at the first request."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def can(self) -> bool:
        """Whether params.yaml has this task."""
        return TASK in self._settings.synthesize.tasks

    @cached_property
    def _engine(self) -> Engine:
        return engine_of(self._settings.synthesize, TASK)

    def paraphrases(self, text: str, count: int) -> list[str]:
        """Up to `count` different paraphrases of a text."""
        if not self.can:
            raise InputError(f"params.yaml has no block synthesize.tasks.{TASK}: type the paraphrase yourself")
        questions = questions_of(self._settings, TASK, self._engine)
        task = questions.task
        source = InputRow("", 0, dict.fromkeys(task.inputs, text))
        requests = [questions.about(source, attempt) for attempt in range(count)]
        replies = [reply for batch in self._engine.answer(requests) for reply in batch]
        wordings = [task.parse(reply.answer) for reply in replies if reply.answer is not None]
        distinct = dict.fromkeys(wording.strip() for wording in wordings if wording and wording.strip())
        found = [wording for wording in distinct if wording.lower() != text.lower()]
        if not found:
            raise InputError(f"the language model has no other wording of '{text[:80]}': type one yourself")
        return found
