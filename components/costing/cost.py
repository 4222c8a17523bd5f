"""The cost of each stage of a plan: rates of a machine times counts of rows, questions and parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import torch
import yaml
from pydantic import NonNegativeFloat, PositiveFloat, ValidationError
from torch import nn

from components.captions.generating.engines import Engine, engine_of
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import InputRow, Request
from components.core.settings import Block, Settings, explain_fault
from components.core.settings.yaml_text import explain_yaml, read_yaml
from components.core.system.errors import InputError
from components.core.tables.training_columns import IMAGES, holders_of, table_file
from components.core.tables.work_shard import Shard
from components.encoders.adapter.architecture import build
from components.encoders.adapter.model_configs import model_config
from components.methods.contract.method import Method
from components.methods.registry import find_entry

_MEASURED = Path(__file__).parent / "rates.yaml"
_CHARACTERS_PER_TOKEN = 4
"""Of English, about, for the tokenizers of language models."""
_CAPTION = "a photo of two small dogs that play on the grass behind a red house"
"""Stands for texts that no stage has made yet."""
_SAMPLE = 2000
"""Questions whose tokens are counted, and which are looked up in the store."""
_TEXTS_PER_TEST = 12
"""Texts that the demo's benchmarks embed per test picture, about."""
_OPTIMISER = 16
"""Bytes of memory for a trained weight: the weight, its gradient, AdamW's two averages."""
_WITH_BACKWARD = 3
"""A forward and backward pass takes this many times as long as a forward pass."""


class PerRow(Block):
    """Cost of a stage: at its start, and per row."""

    start_s: NonNegativeFloat
    row_us: NonNegativeFloat
    memory_gb: NonNegativeFloat
    row_memory_bytes: NonNegativeFloat
    row_disk_bytes: NonNegativeFloat


class Tokens(Block):
    """Throughput of a language model over all concurrent questions."""

    tokens_in_per_second: PositiveFloat
    tokens_out_per_second: PositiveFloat

    def seconds(self, tokens_in: float, tokens_out: float) -> float:
        """The time for these tokens."""
        return tokens_in / self.tokens_in_per_second + tokens_out / self.tokens_out_per_second


class Rates(Block):
    """The rates of one machine, or of a cluster."""

    machine: str
    stages: dict[str, PerRow]
    similarities_per_second: PositiveFloat
    local: Tokens
    server: Tokens | None = None
    trained_texts_per_second: PositiveFloat
    """Through ViT-B/32's text tower, forward and backward; other towers in proportion to their parameters."""
    embedded_images_per_second: PositiveFloat
    """Through ViT-B/32's image tower, forward; other towers in proportion to their parameters."""


def load_rates(given: Path | None = None) -> Rates:
    """The rates of this package, overridden by those of the file `given`.

    Raises:
        InputError: the file is missing, is not YAML, or has an unknown key or a wrong value.
    """
    content = _read(_MEASURED)
    if given is not None:
        own = _read(given)
        content = content | own | {"stages": content["stages"] | own.get("stages", {})}
    try:
        return Rates.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{given or _MEASURED}: {explain_fault(error, Rates)}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): give a file of rates") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {explain_yaml(error)}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} has no keys: see {_MEASURED} for those it may have")
    return content


@dataclass(frozen=True)
class TaskQuestions:
    """Numbers of a task's questions.

    Attributes:
        open: those that neither the store nor `synthesize.cached_answers` answers.
        tokens_in, tokens_out: of the open questions, and of their answers at most.
        sure: whether the input table exists; without it the numbers are upper bounds.
    """

    all: int
    open: int
    tokens_in: int
    tokens_out: int
    sure: bool


def count_questions(settings: Settings) -> dict[str, TaskQuestions]:
    """The questions of each task of params.yaml.

    Raises:
        InputError: a task or its model is wrong.
    """
    answers = _KnownAnswers(settings)
    return {name: _count_of_task(settings, name, answers) for name in settings.synthesize.tasks}


class _KnownAnswers:
    """Answers in the store, and in the replay file, which is merged into it first."""

    def __init__(self, settings: Settings) -> None:
        replay, self._url = settings.synthesize.cached_answers, settings.synthesize.store
        rows = []
        if replay is not None and replay.is_file():
            table = pq.read_table(replay, columns=["key", "task", "model"])
            rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        self._replayed = frozenset(key for key, _, _ in rows)
        self.replayed_of = Counter((task, model) for _, task, model in rows)

    def stored(self, questions: Iterable[Request]) -> set[str]:
        """The keys of `questions` with an answer in the store."""
        try:
            store = GenerationStore(self._url, must_exist=True)
        except InputError:
            # A store that does not exist yet has no answers.
            return set()
        with closing(store):
            return set(store.answers({question.key for question in questions}))

    def among(self, questions: Sequence[Request]) -> int:
        """The number of `questions` with an answer."""
        return len(self.stored(questions) | self._replayed & {question.key for question in questions})


def _count_of_task(settings: Settings, name: str, answers: _KnownAnswers) -> TaskQuestions:
    task = settings.synthesize.tasks[name]
    try:
        questions = questions_of(settings, name, engine_of(settings.synthesize, name))
    except InputError:
        # A student that is not trained yet has no name and no answers.
        questions = questions_of(settings, name, cast("Engine", SimpleNamespace(model="")))
    rows, sure = questions.most, task.input.is_file()
    if sure:
        step = max(1, rows // _SAMPLE)
        sample = list(questions.read(Shard(0, step) if step > 1 else None))
    else:
        sample = [questions.about(InputRow("", 0, dict.fromkeys(questions.task.inputs, _CAPTION)), 0)]
    if not sample:
        return TaskQuestions(0, 0, 0, 0, sure)
    if sure:
        answered = answers.among(sample) / len(sample)
    else:
        answered = min(1.0, answers.replayed_of[name, questions.model] / rows)
    # The first questions are sent to the model although the replay has their answers.
    live = 0 if answers.stored(sample[:1]) else min(task.always_ask_first, rows)
    unanswered = max(live, round(rows * (1 - answered)))
    characters = sum(len(content) for question in sample for _, content in question.chat) / len(sample)
    tokens = round(unanswered * characters / _CHARACTERS_PER_TOKEN)
    return TaskQuestions(rows, unanswered, tokens, unanswered * task.max_tokens, sure)


@dataclass(frozen=True)
class Cost:
    """The cost of one stage.

    Attributes:
        seconds: None if no rate is known.
        disk, memory: bytes of output, and bytes of peak memory.
        questions, tokens_in, tokens_out: to a language model; the tokens of its answers are an upper bound.
        price: of the tokens, if prices are given and a server answers.
        notes: reasons why a number is a guess.
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
    """Costs of a profile's stages; `prices` are of a million tokens of questions and answers, for engine `server`."""

    def __init__(self, settings: Settings, rates: Rates, prices: tuple[float, float] | None = None) -> None:
        self._settings, self._rates, self._prices = settings, rates, prices
        self._groups: dict[str, Callable[[str], Cost]] = {
            "prepare": self._prepare, "base": self._base, "embed": self._embed, "synthesize": self._synthesize,
            "test_set": self._test_set,
            "validate": self._validate, "train": self._train, "evaluate": self._evaluate, "seed": self._seed,
            "repeat": self._repeat, "repeat_mix": self._evaluate,
        }  # fmt: skip

    def of(self, stages: Sequence[str]) -> list[Cost]:
        """The cost of each of `stages`.

        Raises:
            InputError: a setting is wrong.
        """
        costs = []
        for stage in stages:
            group, _, name = stage.partition("@")
            cost = self._groups[group](name) if group in self._groups else self._rows("other", 0, "")
            costs.append(replace(cost, stage=stage))
        return costs

    def _rows(self, group: str, rows: int, work: str, seconds: float | None = 0.0) -> Cost:
        """The cost of rows in a stage, and `seconds` more."""
        rate = self._rates.stages[group]
        total = None if seconds is None else rate.start_s + rows * rate.row_us / 1e6 + seconds
        memory = rate.memory_gb * 1e9 + rows * rate.row_memory_bytes
        return Cost("", work, total, rows * rate.row_disk_bytes, memory)

    def _prepare(self, _name: str) -> Cost:
        pairs = self._settings.prepare.counts.total
        return self._rows("prepare", pairs, f"{pairs:,} pairs")

    def _base(self, _name: str) -> Cost:
        base, model = self._settings.base, self._model
        weights = 4 * _count(model)
        plan = {"scratch": base.scratch, "timm": base.fit}.get(base.source)
        if plan is None:
            cost = self._rows("base", 0, f"loads {base.model}")
            return replace(cost, disk=weights, memory=cost.memory + 2 * weights)
        pairs = self._settings.prepare.counts.train
        samples = plan.epochs * pairs
        # `fit` computes the features of its frozen image tower once.
        passes = _WITH_BACKWARD * samples if base.source == "scratch" else pairs
        seconds = self._text_seconds(samples) + self._image_seconds(passes)
        cost = self._rows("base", 0, f"{samples:,} samples", seconds)
        return replace(cost, disk=weights, memory=cost.memory + _OPTIMISER * _count(model))

    def _embed(self, _name: str) -> Cost:
        images, dim = self._settings.prepare.counts.total, model_config(self._settings.base.model)["embed_dim"]
        cost = self._rows("embed", images, f"{images:,} pictures", self._image_seconds(images))
        return replace(cost, disk=4.0 * dim * images, memory=cost.memory + 4 * _count(self._model))

    def _synthesize(self, name: str) -> Cost:
        block, questions = self._settings.synthesize, self._questions[name]
        engine = block.llms[block.model_of(block.tasks[name])]["engine"]
        rate = self._rates.local if engine == "local" else self._rates.server
        seconds = 0.0 if questions.open == 0 else None
        if rate is not None:
            seconds = rate.seconds(questions.tokens_in, questions.tokens_out)
        notes = [] if questions.sure else ["a guess: its input table does not exist yet"]
        if seconds is None:
            notes.append(f"no rate of engine {engine} is known: give `server` with --rates")
        price = None
        if self._prices is not None and engine == "server":
            price = (questions.tokens_in * self._prices[0] + questions.tokens_out * self._prices[1]) / 1e6
        work = f"{questions.open:,} of {questions.all:,} questions"
        return replace(
            self._rows("synthesize", questions.all, work, seconds),
            questions=questions.open,
            tokens_in=questions.tokens_in,
            tokens_out=questions.tokens_out,
            price=price,
            notes=tuple(notes),
        )

    def _test_set(self, _name: str) -> Cost:
        """Its questions and those of its judge, whose number follows from the settings."""
        options, block = self._settings.test_set, self._settings.synthesize
        if options.llm is None:
            return self._rows("other", 0, "")
        counts = self._settings.prepare.counts
        captions = min(options.max_captions, counts.test) + min(options.max_validation_captions, counts.val)
        questions = 2 * captions * (options.paraphrases + 2)
        # A question has about 80 tokens; a judge answers with one word.
        tokens_in, tokens_out = 80 * questions, questions * options.max_tokens // 2
        rate = self._rates.local if block.llms[options.llm]["engine"] == "local" else self._rates.server
        seconds = None if rate is None else rate.seconds(tokens_in, tokens_out)
        cost = self._rows("synthesize", questions, f"{questions:,} questions", seconds)
        return replace(cost, questions=questions, tokens_in=tokens_in, tokens_out=tokens_out)

    def _validate(self, table: str) -> Cost:
        rows = self._answers(table)
        similar = self._settings.validation.limits(table).measure_similarity
        # The caption and its answer are embedded.
        seconds = 2 * rows / self._rates.similarities_per_second if similar else 0.0
        return self._rows("validate", rows, f"{rows:,} answers", seconds)

    def _train(self, name: str) -> Cost:
        entry = find_entry(self._settings.methods, name)
        method, hyper, model = entry.method, entry.hyper, self._model
        columns = method.columns(hyper)
        rows = self._trained_rows(method.needs(hyper), entry.reads)
        texts = len(columns - set(IMAGES))
        images = 0 if hyper.image_tower == "frozen" else len(columns & set(IMAGES))
        samples = hyper.epochs * (rows // hyper.batch_size) * hyper.batch_size
        seconds = self._text_seconds(samples * texts) + self._image_seconds(_WITH_BACKWARD * samples * images)
        cost = self._rows("train", rows, f"{samples:,} samples of {texts} texts", seconds)
        notes, trained = [], _count(model)
        if method.build_encoder is Method.build_encoder:
            trained = sum(weights.numel() for weights in method.freeze(model, hyper).values())
        else:
            notes.append("a guess: its own text tower counts like the base's")
        if method.augment is not None:
            notes.append("a lower bound: without the texts that it tries for each batch")
        memory = cost.memory + 4 * _count(model) + _OPTIMISER * trained
        return replace(cost, disk=cost.disk + 4 * _count(model), memory=memory, notes=tuple(notes))

    def _evaluate(self, _name: str) -> Cost:
        texts = _TEXTS_PER_TEST * self._settings.prepare.counts.test
        return self._rows("evaluate", 0, f"{texts:,} texts", self._text_seconds(texts) / _WITH_BACKWARD)

    def _seed(self, _name: str) -> Cost:
        """The base with another seed, its embeddings and results."""
        return _together(self._base(""), self._embed(""), self._evaluate("base"))

    def _repeat(self, name: str) -> Cost:
        """A method with another seed, and its results; `name` is the seed and the encoder."""
        return _together(self._train(name.partition("-")[2]), self._evaluate(""))

    @cached_property
    def _model(self) -> nn.Module:
        """The base's architecture without weights, for its numbers of parameters."""
        with torch.device("meta"):
            model: nn.Module = build(model_config(self._settings.base.model))
        return model

    def _text_seconds(self, texts: int) -> float:
        """Time of texts forward and backward through the base's text tower."""
        named = self._model.named_parameters()
        size = sum(w.numel() for name, w in named if not name.startswith("visual.") and "embedding" not in name)
        return texts * size / (self._rates.trained_texts_per_second * _VIT_B_32_TEXT)

    def _image_seconds(self, images: int) -> float:
        """Time of images forward through the base's image tower."""
        size = _count(self._model.get_submodule("visual"))
        return images * size / (self._rates.embedded_images_per_second * _VIT_B_32_IMAGE)

    @cached_property
    def _questions(self) -> dict[str, TaskQuestions]:
        return count_questions(self._settings)

    def _answers(self, table: str) -> int:
        """Answers that become rows of `table`: the most of any of its tasks, if all are usable."""
        tasks = self._settings.synthesize.tasks
        return max((self._questions[name].all for name, task in tasks.items() if task.table == table), default=0)

    def _trained_rows(self, needs: frozenset[str], reads: Path) -> int:
        """Rows that are in all tables that a method needs; a missing table counts with its answers."""
        rows = []
        for name in holders_of(needs):
            file = table_file(reads, name)
            rows.append(pq.read_metadata(file).num_rows if file.is_file() else self._answers(file.stem))
        return min(rows, default=self._settings.prepare.counts.train)


_VIT_B_32_TEXT, _VIT_B_32_IMAGE = 38_091_777, 87_849_216
"""Parameters of ViT-B/32's towers, without the tables of words and positions; a machine's rates are of these towers."""


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _together(*costs: Cost) -> Cost:
    return Cost(
        "",
        "; ".join(cost.work for cost in costs),
        sum(cost.seconds or 0.0 for cost in costs),
        sum(cost.disk for cost in costs),
        max(cost.memory for cost in costs),
        notes=tuple(note for cost in costs for note in cost.notes),
    )
