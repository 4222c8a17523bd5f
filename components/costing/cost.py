"""The cost of each stage of a plan: rates of a machine times counts of rows, questions and parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow.parquet as pq
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from components.core.settings import Settings
from components.core.tables import NEIGHBOUR
from components.core.tables.folders import EVALUATION, PAIRS
from components.core.tables.training_columns import IMAGES, holders_of, table_file
from components.costing.parameters import SMOLLM2, count, parts_of, size_of
from components.costing.questions import TaskQuestions, count_questions
from components.costing.rates import Rates, Tokens
from components.encoders.adapter.architecture import build
from components.encoders.adapter.language_tower import packaged_model
from components.encoders.adapter.model_configs import model_config
from components.methods.contract.method import Method
from components.methods.joint import JointSettings
from components.methods.lm_text_tower import LmTextTowerSettings
from components.methods.query_adapter import QueryAdapterSettings
from components.methods.read_clip import ReadClipSettings
from components.methods.registry import find_entry
from components.test_queries.kinds import written_files
from components.validation.rules.tables import find_table

_TEXTS, _TEXTS_PER_TEST = 1200, 12
"""Texts that the benchmarks embed, about: in any case, and more per test picture."""
_OPTIMISER = 16
"""Bytes of memory for a trained weight: the weight, its gradient, AdamW's two averages."""
_WITH_BACKWARD = 3
"""A forward and backward pass takes this many times as long as a forward pass."""
_JUDGED_TOKENS = 80
"""Tokens of a question to a judge, about."""
_NO_RATE = "the rate of the server is unknown: give `server` with --rates"


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
        """The cost of each of `stages`."""
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
        weights = 4 * count(model)
        plan = {"scratch": base.scratch, "timm": base.fit}.get(base.source)
        if plan is None:
            cost = self._rows("base", 0, f"loads {base.model}")
            return replace(cost, disk=weights, memory=cost.memory + 2 * weights)
        pairs = self._settings.prepare.counts.train
        # `fit` sees each picture once in an epoch, and computes the features of its frozen image tower once.
        visited = pairs if base.source == "scratch" else self._pictures(pairs)
        samples = plan.epochs * visited
        passes = _WITH_BACKWARD * samples if base.source == "scratch" else visited
        seconds = self._text_seconds(samples, self._text_size("base")) + self._image_seconds(passes)
        cost = self._rows("base", 0, f"{samples:,} samples", seconds)
        return replace(cost, disk=weights, memory=cost.memory + _OPTIMISER * count(model))

    def _embed(self, _name: str) -> Cost:
        counts, dim = self._settings.prepare.counts, model_config(self._settings.base.model)["embed_dim"]
        images = sum(self._pictures(getattr(counts, split), split) for split in ("train", "val", "test"))
        if self._settings.prepare.source == "embeddings":
            # Given vectors are copied.
            cost = self._rows("embed", images, f"{images:,} vectors")
        else:
            cost = self._rows("embed", images, f"{images:,} pictures", self._image_seconds(images))
        return replace(cost, disk=4.0 * dim * images, memory=cost.memory + 4 * count(self._model))

    def _synthesize(self, name: str) -> Cost:
        block, questions = self._settings.synthesize, self._questions[name]
        task = block.tasks[name]
        engine, rate = self._engine(block.model_of(task))
        seconds = 0.0 if questions.open == 0 else None
        if rate is not None:
            seconds = rate.seconds(questions.tokens_in, questions.tokens_out)
        if engine == "local" and questions.open and seconds is not None:
            seconds += self._rates.language_model_load_s
        notes = [] if questions.sure else ["a guess: its input table does not exist yet"]
        if task.judge_llm is not None and questions.open:
            asked, (_, rate) = 2 * questions.open, self._engine(task.judge_llm)
            judging = None if rate is None else rate.seconds(_JUDGED_TOKENS * asked, asked)
            seconds = None if seconds is None or judging is None else seconds + judging
            notes.append(f"the time is with at most {asked:,} questions to '{task.judge_llm}' as its judge")
        if seconds is None:
            notes.append(_NO_RATE)
        price = None
        if self._prices is not None and engine == "server":
            price = (questions.tokens_in * self._prices[0] + questions.tokens_out * self._prices[1]) / 1e6
        done = questions.all - questions.open
        work = f"{questions.open:,} questions" + (f", {done:,} have an answer" if done else "")
        return replace(
            self._rows("synthesize", questions.all, work, seconds),
            questions=questions.open,
            tokens_in=questions.tokens_in,
            tokens_out=questions.tokens_out,
            price=price,
            notes=tuple(notes),
        )

    def _engine(self, llm: str) -> tuple[str, Tokens | None]:
        """The engine of `synthesize.llms.<llm>` and its speed, None if it is unknown."""
        engine = self._settings.synthesize.llms[llm]["engine"]
        return engine, self._rates.local if engine == "local" else self._rates.server

    def _test_set(self, _name: str) -> Cost:
        """Its questions and those of its judge, whose number follows from the settings."""
        options = self._settings.test_set
        if options.llm is None:
            return self._rows("prepare", 0, "")
        counts = self._settings.prepare.counts
        captions = min(options.max_captions, counts.test) + min(options.max_validation_captions, counts.val)
        kinds = [kind.name for kind in written_files(EVALUATION)]
        # Every query has a question to the judge.
        questions = 2 * captions * sum(options.paraphrases if kind == "paraphrase" else 1 for kind in kinds)
        # A judge answers with one word.
        tokens_in, tokens_out = _JUDGED_TOKENS * questions, questions * options.max_tokens // 2
        _, rate = self._engine(options.llm)
        seconds = None if rate is None else rate.seconds(tokens_in, tokens_out)
        cost = self._rows("synthesize", questions, f"{questions:,} questions", seconds)
        notes = (_NO_RATE,) if seconds is None else ()
        return replace(cost, questions=questions, tokens_in=tokens_in, tokens_out=tokens_out, notes=notes)

    def _validate(self, table: str) -> Cost:
        rows = self._answers(table)
        similar = self._settings.validation.limits(table).measure_similarity
        # The caption and its answer are embedded.
        seconds = 2 * rows / self._rates.similarities_per_second if similar else 0.0
        # Judges' scores are numbers.
        if any(len(answer.checks) > 1 for answer in find_table(table).answers):
            seconds += self._rates.text_checks_load_s
        return self._rows("validate", rows, f"{rows:,} answers", seconds)

    def _train(self, name: str) -> Cost:
        entry = find_entry(self._settings.methods, name)
        method, hyper, model = entry.method, entry.hyper, self._model
        columns = method.columns(hyper)
        rows = self._trained_rows(method.needs(hyper), entry.reads)
        shown = [column for column in columns if column.removeprefix(NEIGHBOUR) in IMAGES]
        texts, images = len(columns) - len(shown), 0 if hyper.image_tower == "frozen" else len(shown)
        visited = self._pictures(rows) if method.epoch_unit(hyper) == "images" else rows
        samples = hyper.epochs * (visited // hyper.batch_size) * hyper.batch_size
        seconds = self._text_seconds(samples * texts, self._text_size(name))
        # Frozen text towers have no backward pass.
        tower = self._language_tower(name)
        if (tower and tower.strategy == "frozen") or isinstance(hyper, QueryAdapterSettings):
            seconds /= _WITH_BACKWARD
        seconds += self._load_seconds(name)
        seconds += self._image_seconds(_WITH_BACKWARD * samples * images)
        teachers = 0
        if method.reads_base(hyper):
            seconds += self._text_seconds(samples * texts, self._text_size("base")) / _WITH_BACKWARD
            seconds += self._image_seconds(samples * images)
            teachers += count(model)
        for part in parts_of(hyper):
            if isinstance(part, ReadClipSettings):
                size = size_of(part.language_model, SMOLLM2)
                # Its own weights have no gradient, a third of all products.
                seconds += self._text_seconds(samples, size) * 2 / _WITH_BACKWARD
                teachers += size
        cost = self._rows("train", rows, f"{samples:,} samples of {texts} texts", seconds)
        notes, trained = [], count(model)
        builder = getattr(hyper, "builder", None)
        if (method.build_encoder is Method.build_encoder or isinstance(hyper, JointSettings)) and builder is None:
            trained = sum(weights.numel() for weights in method.freeze(model, hyper).values())
        elif tower is None and getattr(hyper, "encoder", None):
            notes.append("a guess: its own text tower counts like the base's")
        if method.augment is not None:
            notes.append("a lower bound: without the texts that it tries for each batch")
        if self._settings.train.validate_every:
            notes.append("a lower bound: without early metrics")
        memory = cost.memory + 4 * (count(model) + teachers) + _OPTIMISER * trained
        return replace(cost, disk=cost.disk + 4 * count(model), memory=memory, notes=tuple(notes))

    def _evaluate(self, name: str) -> Cost:
        pictures = self._settings.prepare.counts.test
        texts = _TEXTS + _TEXTS_PER_TEST * pictures
        seconds = texts * self._text_size(name) / (self._rates.embedded_texts_per_second * _VIT_B_32_TEXT)
        return self._rows("evaluate", pictures, f"{texts:,} texts", self._load_seconds(name) + seconds)

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

    def _text_size(self, encoder: str) -> int:
        """Parameters of an encoder's text tower without embeddings."""
        base, size = self._settings.base, count(self._model, ("visual.", "embedding"))
        if tower := self._language_tower(encoder):
            given = tower.language_model
        elif base.source == "timm" and base.fit is not None:
            given = base.fit.language_model
        else:
            return size
        # A model that has not been fetched yet counts like the text tower of CLIP.
        return size_of(given or str(packaged_model()), size, ("embedding",))

    def _language_tower(self, encoder: str) -> LmTextTowerSettings | None:
        """The settings of a method, or of a part, whose text tower is a language model."""
        methods = self._settings.methods
        parts = parts_of(find_entry(methods, encoder).hyper) if encoder in methods else []
        return next((part for part in parts if isinstance(part, LmTextTowerSettings)), None)

    def _load_seconds(self, encoder: str) -> float:
        """Time until a text tower that is a language model can compute."""
        return self._rates.language_tower_load_s if self._language_tower(encoder) else 0.0

    def _text_seconds(self, texts: int, size: int) -> float:
        """Time of texts forward and backward through a text tower."""
        each = size / (self._rates.trained_texts_per_second * _VIT_B_32_TEXT)
        return texts * (each + self._rates.trained_text_us / 1e6)

    def _image_seconds(self, images: int) -> float:
        """Time of images forward through the base's image tower."""
        operations, outputs = self._image_work
        each = operations / (self._rates.embedded_images_per_second * _VIT_B_32_OPERATIONS)
        each += outputs / self._rates.layer_outputs_per_second
        return images * (each + self._rates.embedded_image_us / 1e6)

    @cached_property
    def _image_work(self) -> tuple[int, int]:
        """Operations of one picture forward through the base's image tower, and numbers that its layers write.

        Convolutions within channels have few operations and write as much as others: memory decides their time.
        """
        config = model_config(self._settings.base.model)
        size = config["vision_cfg"].get("image_size", 224)
        shape, written = (size, size) if isinstance(size, int) else tuple(size), list[int]()
        with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
            tower = build(config).get_submodule("visual").eval().requires_grad_(False)
            for layer in tower.modules():
                if not any(layer.children()):
                    layer.register_forward_hook(lambda _layer, _given, made: written.append(made.numel()))
            tower(torch.empty(1, 3, *shape))
        return int(counter.get_total_flops()), sum(written)

    @cached_property
    def _questions(self) -> dict[str, TaskQuestions]:
        return count_questions(self._settings)

    def _answers(self, table: str) -> int:
        """Answers that become rows of `table`: the most of any of its tasks, if all are usable."""
        tasks = self._settings.synthesize.tasks
        return max((self._questions[name].all for name, task in tasks.items() if task.table == table), default=0)

    def _pictures(self, rows: int, split: str = "train") -> int:
        """The number of pictures of so many rows, at most; one per row before `prepare` has run."""
        pairs = PAIRS / f"{split}.parquet"
        if not pairs.is_file():
            return rows
        return min(rows, len(pq.read_table(pairs, columns=["image_id"])["image_id"].unique()))

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


_VIT_B_32_TEXT, _VIT_B_32_OPERATIONS = 38_091_777, 8_817_623_040
"""Parameters of ViT-B/32's text tower, without the tables of words and positions, and operations of its image tower for
one picture; a machine's rates are of these towers."""


def _together(*costs: Cost) -> Cost:
    return Cost(
        "",
        "; ".join(cost.work for cost in costs),
        sum(cost.seconds or 0.0 for cost in costs),
        sum(cost.disk for cost in costs),
        max(cost.memory for cost in costs),
        notes=tuple(note for cost in costs for note in cost.notes),
    )
