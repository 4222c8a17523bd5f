"""The cost of each stage of a plan: counts of rows, texts, pictures and questions by the rates of a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import yaml
from pydantic import NonNegativeFloat, PositiveFloat, ValidationError

from components.captions.generating.engines import make_engine
from components.captions.generating.engines.server import ServerEngine
from components.captions.test_queries.kinds import written_files
from components.cli.costing.questions import TaskQuestions, count_questions
from components.core.settings import Block, Settings, explain_fault
from components.core.settings.block import explain_yaml, read_yaml
from components.core.system.errors import InputError
from components.core.tables import NEIGHBOUR
from components.core.tables.folders import EVALUATION, PAIRS
from components.core.tables.training_columns import IMAGES, holders_of, table_file
from components.core.tables.written_queries import read_summary
from components.encoders.adapter.language_tower import PACKAGED
from components.training.methods.joint import Joint
from components.training.methods.lm_text_tower import LmTextTower, LmTextTowerSettings
from components.training.methods.query_adapter import QueryAdapterSettings
from components.training.methods.registry import find_entry

_JUDGED_TOKENS = 80
"""Tokens of a question to a judge, about."""
_NOT_COUNTED = "not counted are passes of teachers, texts that a method tries in each batch, and early metrics"
_SHIPPED = Path(__file__).parent / "machines"
TWO_CORES = "two_cores"

Unit = Literal["pictures", "trained_pictures", "texts", "trained_texts", "questions", "rows"]
Count = tuple[int, Unit, str]
"""A number of units, such as 400 `texts`, and the encoder, engine or stage whose rate they have."""


class Rates(Block):
    """The rates of one machine, or of a cluster; a rate that was not measured is left out.

    Attributes:
        start_s: seconds until a stage can begin.
        per_second: unit -> its rates. Pictures and texts have one for each encoder or language model, questions for
            each engine, rows for each stage. `trained_` is forward and backward.
    """

    machine: str
    start_s: NonNegativeFloat = 0.0
    per_second: dict[Unit, dict[str, PositiveFloat]]


@dataclass(frozen=True)
class Cost:
    """The cost of one stage.

    Attributes:
        seconds: None if a rate is unknown.
        questions, tokens_in, tokens_out: to a language model; the tokens of its answers are an upper bound.
        price, batch_price: of the tokens sent one by one, and in a batch, if prices are known and a server answers.
        notes: unknown rates, and reasons why a number is a guess.
    """

    stage: str
    work: str
    seconds: float | None
    questions: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    price: float | None = None
    batch_price: float | None = None
    notes: tuple[str, ...] = ()


class Costing:
    """Costs of a profile's stages.

    `prices` are of a million tokens of questions and answers, for engine `server`; by default those of the model.
    """

    def __init__(self, settings: Settings, rates: Rates, prices: tuple[float, float] | None = None) -> None:
        self._settings, self._rates, self._prices = settings, rates, prices
        self._known_pictures: dict[str, int | None] = {}
        self._groups: dict[str, Callable[[str], Cost]] = {
            "prepare": self._prepare, "base": self._base, "embed": self._embed, "synthesize": self._synthesize,
            "test_set": self._test_set, "validate": self._validate, "train": self._train, "evaluate": self._evaluate,
        }  # fmt: skip

    def of(self, stages: Sequence[str]) -> list[Cost]:
        """The cost of each of `stages`."""
        costs = []
        for stage in stages:
            group, _, name = stage.partition("@")
            cost = self._groups[group](name) if group in self._groups else self._cost("")
            costs.append(replace(cost, stage=stage))
        return costs

    def _cost(self, work: str, *counts: Count, notes: Sequence[str] = ()) -> Cost:
        """The cost of some counts."""
        seconds, unknown = self._rates.start_s, list[str]()
        for number, unit, of in counts:
            rate = self._rates.per_second.get(unit, {}).get(of)
            if rate is not None:
                seconds += number / rate
            elif number:
                unknown.append(f"no rate for {unit} of {of} on {self._rates.machine}: give it with --rates")
        return Cost("", work, None if unknown else seconds, notes=(*unknown, *notes))

    def _prepare(self, _name: str) -> Cost:
        pairs = self._settings.prepare.counts.total
        return self._cost(f"{pairs:,} pairs", (pairs, "rows", "prepare"))

    def _base(self, _name: str) -> Cost:
        base = self._settings.base
        plan = {"scratch": base.scratch, "timm": base.fit}.get(base.source)
        if plan is None:
            return self._cost(f"loads {base.model}")
        pairs = self._settings.prepare.counts.train
        # `fit` sees each picture once in an epoch, and computes the features of its frozen image tower once.
        visited = pairs if base.source == "scratch" else self._pictures(pairs)
        samples = plan.epochs * visited
        texts: Count = samples, "trained_texts", self._text_tower("base")
        pictures: Count = visited, "pictures", base.model
        if base.source == "scratch":
            pictures = samples, "trained_pictures", base.model
        return self._cost(f"{samples:,} samples", texts, pictures)

    def _embed(self, _name: str) -> Cost:
        base, counts = self._settings.base, self._settings.prepare.counts
        images = sum(self._pictures(getattr(counts, split), split) for split in ("train", "val", "test"))
        given = self._settings.prepare.source == "embeddings"
        work = f"{images:,} vectors" if given else f"{images:,} pictures"
        # Given vectors are copied.
        return self._cost(work, (0 if given else images, "pictures", base.model))

    def _synthesize(self, name: str) -> Cost:
        block, questions = self._settings.synthesize, self._questions[name]
        task = block.tasks[name]
        engine = self._engine(block.model_of(task))
        counts: list[Count] = [(questions.all, "rows", "synthesize"), (questions.open, "questions", engine)]
        notes = [] if questions.sure else ["a guess: its input table does not exist yet"]
        if task.judge_llm is not None and questions.open:
            asked = 2 * questions.open
            counts.append((asked, "questions", self._engine(task.judge_llm)))
            notes.append(f"the time is with at most {asked:,} questions to '{task.judge_llm}' as its judge")
        price, batch_price = self._both_prices(block.model_of(task), questions)
        done = questions.all - questions.open
        work = f"{questions.open:,} questions" + (f", {done:,} have an answer" if done else "")
        return replace(
            self._cost(work, *counts, notes=notes),
            questions=questions.open,
            tokens_in=questions.tokens_in,
            tokens_out=questions.tokens_out,
            price=price,
            batch_price=batch_price,
        )

    def _both_prices(self, llm: str, questions: TaskQuestions) -> list[float | None]:
        """Prices of a task's questions sent one by one and in a batch."""
        engine = make_engine(self._settings.synthesize, llm) if self._engine(llm) == "server" else None
        if not isinstance(engine, ServerEngine):
            return [None, None]
        live = self._prices or engine.options.prices
        batch = engine.options.batch_prices or (live and (live[0] / 2, live[1] / 2))
        tokens = questions.tokens_in, questions.tokens_out
        return [(tokens[0] * each[0] + tokens[1] * each[1]) / 1e6 if each else None for each in (live, batch)]

    def _engine(self, llm: str) -> str:
        return str(self._settings.synthesize.llms[llm]["engine"])

    def _test_set(self, _name: str) -> Cost:
        """Its questions and those of its judge, whose number follows from the settings."""
        options = self._settings.test_set
        if read_summary() is not None:
            return self._cost("keeps the test set")
        if options.llm is None:
            return self._cost("")
        counts = self._settings.prepare.counts
        captions = min(options.max_captions, counts.test) + min(options.max_validation_captions, counts.val)
        kinds = [kind.name for kind in written_files(EVALUATION)]
        # Every query has a question to the judge.
        questions = 2 * captions * sum(options.paraphrases if kind == "paraphrase" else 1 for kind in kinds)
        # A judge answers with one word.
        tokens_in, tokens_out = _JUDGED_TOKENS * questions, questions * options.max_tokens // 2
        asked: Count = questions, "questions", self._engine(options.llm)
        cost = self._cost(f"{questions:,} questions", asked)
        return replace(cost, questions=questions, tokens_in=tokens_in, tokens_out=tokens_out)

    def _validate(self, table: str) -> Cost:
        block, rows = self._settings.validation, self._answers(table)
        # The caption and its answer are embedded.
        texts = 2 * rows if block.limits(table).measure_similarity else 0
        similar: Count = texts, "texts", Path(block.similarity_model or PACKAGED).name
        return self._cost(f"{rows:,} answers", (rows, "rows", "validate"), similar)

    def _train(self, name: str) -> Cost:
        entry, base = find_entry(self._settings.methods, name), self._settings.base
        method, hyper = entry.method, entry.method.settings
        columns = method.columns
        rows = self._trained_rows(method.needs, entry.reads)
        shown = [column for column in columns if column.removeprefix(NEIGHBOUR) in IMAGES]
        texts, images = len(columns) - len(shown), 0 if hyper.image_tower == "frozen" else len(shown)
        visited = self._pictures(rows) if method.epoch_unit == "images" else rows
        samples = hyper.epochs * (visited // hyper.batch_size) * hyper.batch_size
        tower = self._language_tower(name)
        # Frozen text towers have no backward pass.
        frozen = (tower and tower.strategy == "frozen") or isinstance(hyper, QueryAdapterSettings)
        passes: Count = samples * texts, "texts" if frozen else "trained_texts", self._text_tower(name)
        pictures: Count = samples * images, "trained_pictures", base.model
        return self._cost(f"{samples:,} samples of {texts} texts", passes, pictures, notes=[_NOT_COUNTED])

    def _evaluate(self, name: str) -> Cost:
        """Every benchmark embeds about one text for each test picture."""
        pictures = self._settings.prepare.counts.test
        texts = len(self._settings.evaluate.benchmarks) * pictures
        passes: Count = texts, "texts", self._text_tower(name)
        return self._cost(f"{texts:,} texts", (pictures, "rows", "evaluate"), passes)

    def _text_tower(self, encoder: str) -> str:
        """The name of an encoder's text tower: a language model's, or the base's."""
        base, tower = self._settings.base, self._language_tower(encoder)
        if tower is None and (base.source != "timm" or base.fit is None):
            return base.model
        given = tower or base.fit
        return Path((given and given.language_model) or PACKAGED).name

    def _language_tower(self, encoder: str) -> LmTextTowerSettings | None:
        """The settings of a method, or of a part, whose text tower is a language model."""
        if encoder not in self._settings.methods:
            return None
        method = find_entry(self._settings.methods, encoder).method
        parts = method.parts.values() if isinstance(method, Joint) else [method]
        return next((part.settings for part in parts if isinstance(part, LmTextTower)), None)

    @cached_property
    def _questions(self) -> dict[str, TaskQuestions]:
        return count_questions(self._settings)

    def _answers(self, table: str) -> int:
        """Answers that become rows of `table`: the most of any of its tasks, if all are usable."""
        tasks = self._settings.synthesize.tasks
        return max((self._questions[name].all for name, task in tasks.items() if task.table == table), default=0)

    def _pictures(self, rows: int, split: str = "train") -> int:
        """The number of pictures of so many rows, at most; one per row before `prepare` has run."""
        if split not in self._known_pictures:
            pairs = PAIRS / f"{split}.parquet"
            ids = pq.read_table(pairs, columns=["image_id"])["image_id"] if pairs.is_file() else None
            self._known_pictures[split] = None if ids is None else len(ids.unique())
        known = self._known_pictures[split]
        return rows if known is None else min(rows, known)

    def _trained_rows(self, needs: frozenset[str], reads: Path) -> int:
        """Rows that are in all tables that a method needs; a missing one counts with its answers or all pairs."""
        file, rows = PAIRS / "train.parquet", list[int]()
        pairs = pq.read_metadata(file).num_rows if file.is_file() else self._settings.prepare.counts.train
        for name in holders_of(needs):
            file = table_file(reads, name)
            if file.is_file():
                rows.append(pq.read_metadata(file).num_rows)
            else:
                rows.append(pairs if file.parent == PAIRS else self._answers(file.stem))
        return min(rows, default=pairs)


def load_rates(given: str = TWO_CORES) -> Rates:
    """The rates of a machine of this package, such as `h200`, or of a file."""
    shipped = _SHIPPED / f"{given}.yaml"
    path = shipped if shipped.is_file() else Path(given)
    try:
        return Rates.model_validate(_read(path))
    except ValidationError as error:
        raise InputError(f"{path}: {explain_fault(error, Rates)}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(file.stem for file in _SHIPPED.glob("*.yaml")))
        raise InputError(f"rates '{path}' cannot be read ({error}): give a YAML file, or one of {known}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {explain_yaml(error)}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} has no keys: see {_SHIPPED / TWO_CORES}.yaml for those it may have")
    return content
