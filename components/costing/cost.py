"""What each stage of a plan would take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow.parquet as pq

from components.core.progress import track
from components.core.settings import Settings
from components.core.training_columns import IMAGES, holders_of, table_file
from components.costing.asking import Answered, Asking, asking
from components.costing.rates import Rates
from components.costing.speeds import Speeds, entry_of

_TEXTS_PER_TEST = 12
"""Texts that the benchmarks of the embedded world embed for each test picture, about."""
_OPTIMISER = 16
"""Bytes of memory for a weight that trains: the weight, its gradient, AdamW's two averages."""
_WITH_BACKWARD = 3
"""A forward and backward pass takes so many times a forward pass."""


@dataclass(frozen=True)
class Prices:
    """What a hosted model costs for a million tokens each, in whatever currency."""

    tokens_in: float
    tokens_out: float

    def of(self, asked: Asking) -> float:
        """The price of what a task asks."""
        return (asked.tokens_in * self.tokens_in + asked.tokens_out * self.tokens_out) / 1e6


@dataclass(frozen=True)
class Cost:
    """What one stage takes.

    Attributes:
        stage: as dvc.yaml names it.
        work: what it does how often.
        seconds: None where no rate is known.
        disk: bytes that it leaves.
        memory: bytes that it has at most.
        questions: to a language model.
        tokens_in: of these questions.
        tokens_out: of the answers, were each as long as it may be.
        price: of the tokens, where prices are given and a server answers.
        notes: why a number is a guess.
    """

    stage: str
    work: str
    seconds: float | None
    disk: float
    memory: float
    questions: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    price: float | None = None
    notes: tuple[str, ...] = ()


class Costing:
    """Costs of a profile's stages.

    Args:
        settings: the profile.
        rates: of the machine that will run it.
        prices: of the model behind engine `server`, where it is paid for.
    """

    def __init__(self, settings: Settings, rates: Rates, prices: Prices | None = None) -> None:
        self._settings, self._rates, self._prices = settings, rates, prices
        self._speeds = Speeds(settings, rates)
        self._groups: dict[str, Callable[[str], Cost]] = {
            "prepare": self._prepare, "base": self._base, "embed": self._embed, "synthesize": self._synthesize,
            "validate": self._validate, "train": self._train, "evaluate": self._evaluate, "seed": self._seed,
            "repeat": self._repeat, "repeat_mix": lambda name: self._evaluate(name.partition("-")[2]),
        }  # fmt: skip

    def of(self, stages: Sequence[str]) -> list[Cost]:
        """The cost of each of `stages`, with a bar: towers are timed, and questions counted.

        Raises:
            InputError: a setting is wrong, or files of a text tower are not there.
        """
        return [self._cost(stage) for stage in track(stages, "cost", len(stages), "stage")]

    def _cost(self, stage: str) -> Cost:
        group, _, name = stage.partition("@")
        if group not in self._groups:
            return self._rows(stage, "other", 0, "")
        return replace(self._groups[group](name), stage=stage)

    def _rows(self, stage: str, group: str, rows: int, work: str, seconds: float | None = 0.0) -> Cost:
        """What rows take of a stage, and `seconds` besides."""
        rate = self._rates.stages[group]
        taken = None if seconds is None else rate.start_s + rows * rate.row_us / 1e6 + seconds
        memory = rate.memory_gb * 1e9 + rows * rate.row_memory_bytes
        return Cost(stage, work, taken, rows * rate.row_disk_bytes, memory)

    def _prepare(self, _name: str) -> Cost:
        pairs = self._settings.prepare.counts.total
        return self._rows("prepare", "prepare", pairs, f"{pairs:,} pairs")

    def _base(self, _name: str) -> Cost:
        base, speed = self._settings.base, self._speeds.base
        weights = 4 * speed.parameters
        plan = {"scratch": base.scratch, "timm": base.fit}.get(base.source)
        if plan is None:
            found = self._rows("base", "base", 0, f"loads {base.model}")
            return replace(found, disk=weights, memory=found.memory + 2 * weights)
        pairs = self._settings.prepare.counts.train
        samples = plan.epochs * pairs
        # `fit` keeps what its frozen image tower says of a picture.
        passes = _WITH_BACKWARD * samples if base.source == "scratch" else pairs
        seconds = samples / speed.texts + passes / speed.images
        found = self._rows("base", "base", 0, f"{samples:,} samples", seconds)
        return replace(found, disk=weights, memory=found.memory + _OPTIMISER * speed.parameters)

    def _embed(self, _name: str) -> Cost:
        images, speed = self._settings.prepare.counts.total, self._speeds.base
        found = self._rows("embed", "embed", images, f"{images:,} pictures", images / speed.images)
        return replace(found, disk=4.0 * speed.dim * images, memory=found.memory + 4 * speed.parameters)

    def _synthesize(self, name: str) -> Cost:
        block, asked = self._settings.synthesize, self._tasks[name]
        engine = block.models[block.model_of(block.tasks[name])]["engine"]
        rate = self._rates.embedded if engine == "embedded" else self._rates.server
        seconds = rate.seconds(asked.tokens_in, asked.tokens_out) if rate else 0.0 if asked.to_ask == 0 else None
        notes = [] if asked.sure else ["a guess: the table that it asks about is yet to be made"]
        if seconds is None:
            notes.append(f"no rate of engine {engine} is known: give `server` with --rates")
        work = f"{asked.to_ask:,} of {asked.questions:,} questions"
        return replace(
            self._rows("synthesize", "synthesize", asked.questions, work, seconds),
            questions=asked.to_ask,
            tokens_in=asked.tokens_in,
            tokens_out=asked.tokens_out,
            price=self._prices.of(asked) if self._prices and engine == "server" else None,
            notes=tuple(notes),
        )

    def _validate(self, table: str) -> Cost:
        rows = self._answers(table)
        similar = self._settings.validation.limits(table).measure_similarity
        # The caption and its answer are embedded.
        seconds = 2 * rows / self._rates.similarities_per_second if similar else 0.0
        return self._rows("validate", "validate", rows, f"{rows:,} answers", seconds)

    def _train(self, name: str) -> Cost:
        method, hyper, reads = entry_of(self._settings, name)
        columns, speed = method.columns(hyper), self._speeds.trained(name)
        rows = self._trained_rows(method.needs(hyper), reads)
        texts = len(columns - set(IMAGES))
        seen = 0 if hyper.image_tower == "frozen" else len(columns & set(IMAGES))
        samples = hyper.epochs * (rows // hyper.batch_size) * hyper.batch_size
        seconds = samples * (texts / speed.texts + seen * _WITH_BACKWARD / speed.images)
        found = self._rows("train", "train", rows, f"{samples:,} samples of {texts} texts", seconds)
        return replace(
            found,
            disk=found.disk + 4 * speed.parameters,
            memory=found.memory + 4 * speed.parameters + _OPTIMISER * speed.trained,
            notes=() if method.perturbs is None else ("at least: without what it tries on each batch",),
        )

    def _evaluate(self, name: str) -> Cost:
        texts = _TEXTS_PER_TEST * self._settings.prepare.counts.test
        seconds = texts / (_WITH_BACKWARD * self._speeds.of(name).texts)
        return self._rows("evaluate", "evaluate", 0, f"{texts:,} texts", seconds)

    def _seed(self, _name: str) -> Cost:
        """The base with another seed, its embeddings and results."""
        return _together([self._base(""), self._embed(""), self._evaluate("base")])

    def _repeat(self, name: str) -> Cost:
        """A method with another seed, and its results; `name` is the seed and the encoder."""
        encoder = name.partition("-")[2]
        return _together([self._train(encoder), self._evaluate(encoder)])

    @cached_property
    def _tasks(self) -> dict[str, Asking]:
        answered = Answered(self._settings)
        try:
            return {name: asking(self._settings, name, answered) for name in self._settings.synthesize.tasks}
        finally:
            answered.close()

    def _answers(self, table: str) -> int:
        """Answers that become rows of `table`: of its task with the most of them, were all of them usable."""
        tasks = self._settings.synthesize.tasks
        return max((self._tasks[name].questions for name, task in tasks.items() if task.table == table), default=0)

    def _trained_rows(self, needs: frozenset[str], reads: Path) -> int:
        """Rows that are in all tables that a method needs; as many as are answered where a table is yet to be made."""
        rows = []
        for name in holders_of(needs):
            file = table_file(reads, name)
            rows.append(pq.read_metadata(file).num_rows if file.is_file() else self._answers(file.stem))
        return min(rows, default=self._settings.prepare.counts.train)


def _together(parts: Iterable[Cost]) -> Cost:
    costs = list(parts)
    return Cost(
        "",
        "; ".join(cost.work for cost in costs),
        sum(cost.seconds or 0.0 for cost in costs),
        sum(cost.disk for cost in costs),
        max(cost.memory for cost in costs),
        notes=tuple(note for cost in costs for note in cost.notes),
    )
