"""params.yaml as frozen, strict settings: one block per stage, an unknown key is an error."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from components.errors import InputError

PARAMS = Path("params.yaml")


class Block(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class World(Block):
    """What the whole pipeline is about; `name` is the MLflow experiment."""

    name: str
    seed: int = 0


class Counts(Block):
    """Pairs per split."""

    train: PositiveInt
    val: PositiveInt
    test: PositiveInt


class Prepare(Block):
    """Where image-caption pairs come from."""

    source: str
    counts: Counts
    rare_word_share: float = Field(0.04, ge=0, le=1)
    folder: Path | None = None
    """For source `folder`: holds `captions.tsv` (image, caption) and the image files it names."""
    max_caption_words: PositiveInt = 100


class Scratch(Block):
    """Contrastive pre-training of a small encoder on the alt-texts."""

    epochs: PositiveInt
    batch_size: PositiveInt
    lr: PositiveFloat
    warmup_steps: int = Field(ge=0)
    weight_decay: float = Field(ge=0)


class Base(Block):
    """The starting encoder: trained here, an open_clip name and tag, or a saved encoder folder or weights file."""

    source: Literal["scratch", "open_clip", "file"]
    model: str
    """An open_clip model name, or the name of a config file in `components/encoders/models/`."""
    pretrained: str | None = None
    file: Path | None = None
    scratch: Scratch


class Embed(Block):
    """Image embeddings, made once."""

    batch_size: PositiveInt


class Task(Block):
    """One prompt task: the table it reads and how many answers each row gets."""

    input: Path
    samples: PositiveInt = 1
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(0.1, gt=0, le=1)
    max_tokens: PositiveInt = 40
    captions: PositiveInt | None = None
    """How many captions this task takes; all of `synthesize.captions` when not given."""
    pairs: PositiveInt | None = None
    """For a task about two captions: how many ordered pairs of them are drawn; as many as captions when not given."""
    model: str | None = None
    """Who answers, a key of `synthesize.models`; `synthesize.model` when not given."""
    pictures: bool = False
    """Show the model the captions' pictures too, where the task and the engine can."""


class Scale(Block):
    """How the flow `synthesize-captions` spreads a task's rows over workers."""

    shards: PositiveInt = 2
    runner: Literal["threads", "ray", "dask"] = "threads"
    workers: PositiveInt = 2
    """Shards at work at the same time."""
    address: str | None = None
    """A running Ray or Dask cluster; a local one is started when not given."""


class Synthesize(Block):
    """Which captions an LLM rewrites, who answers, and where the answers are kept."""

    models: dict[str, dict[str, Any]]
    """Who can answer: name -> `engine`, a file of `components/captions/engines/`, and that engine's settings."""
    model: str
    """Who answers tasks that name nobody."""
    captions: PositiveInt
    """How many training captions to rewrite."""
    store: str
    """SQLAlchemy URL of the generation store; lives outside every stage's outputs."""
    replay: Path | None = None
    """A Parquet export of generations to import into the store first."""
    tasks: dict[str, Task]
    scale: Scale = Scale()

    def model_of(self, asked: Task) -> str:
        """Who answers a task: a key of `models`."""
        return asked.model or self.model


class Student(Block):
    """A LoRA adapter of a causal language model that learns to answer as a teacher does (ParaCLIP, section 2.1)."""

    tasks: tuple[str, ...] = Field(min_length=1)
    teacher: str | tuple[Path, ...] = Field(min_length=1)
    """A key of `synthesize.models`, or files of lessons written by hand."""
    captions: PositiveInt | None = None
    """How many captions a model as teacher is asked about, for each task."""
    per_task: PositiveInt | None = None
    """How many lessons of each task, drawn by `seed`; all when not given."""
    base: str | None = None
    """A Hugging Face folder or name; SmolLM2-135M-Instruct from its package when not given."""
    rank: PositiveInt = 8
    """Of the adapter, which is on all linear layers and scaled by two."""
    lr: PositiveFloat = 0.001
    epochs: PositiveInt = 4
    batch_size: PositiveInt = 16
    seed: int = 0
    held_out: float = Field(0.05, gt=0, lt=1)
    """Share of the lessons that are never trained on."""
    acceptance: int = Field(32, ge=0)
    """How many held-out captions base and student are asked about for each task."""
    merge: bool = False
    """Also write base and adapter as one model, to the folder `merged`, for engines that take no adapter."""
    processes: PositiveInt = 1
    """Ranks on this machine, one per GPU; for several machines start torchrun yourself."""
    micro_batch: PositiveInt | None = None
    """Lessons that go through the model at once on each rank; gradients stay exact. None: all of the rank's."""
    checkpoint_every: PositiveInt = 50

    @model_validator(mode="after")
    def _asks_about_captions(self) -> Student:
        if isinstance(self.teacher, str) and self.captions is None:
            raise ValueError("a model as teacher needs `captions`: say how many it is asked about")
        return self


class Limits(Block):
    """What a row of a synthesised table must fulfil, and what share of its rows must; null is no limit."""

    min_words: PositiveInt = 3
    max_words: PositiveInt = 30
    min_characters: int = Field(0, ge=0)
    """Characters of a difference."""
    min_similarity: float = Field(0.3, ge=-1, le=1)
    max_similarity: float | None = Field(None, ge=-1, le=1)
    min_new_words: int = Field(2, ge=0)
    """Content words that the source does not have, of x'' and of rewrites."""
    min_overlap: float = Field(0.0, ge=0, le=1)
    """Share of a hard negative's content words that the caption has."""
    min_score: float | None = Field(None, ge=0, le=1)
    """What the judge of differences must give one; null keeps all scores."""
    language: Literal["en"] | None = "en"
    """Reject texts that are surely in another language; null takes any."""
    keep_numbers: bool = True
    """Want the source's numbers, in digits or words, in paraphrases and rewrites."""
    keep_names: bool = True
    """Want the source's capitalised names in paraphrases and rewrites."""
    reject_injections: bool = True
    """Reject rows whose caption or text tries to instruct a language model."""
    near_duplicate: float | None = Field(None, ge=0.5, le=1)
    """Jaccard similarity, of pairs of neighbouring words, from which a row repeats an earlier one; null is no limit."""
    judged: bool = True
    """Take what the judge let pass or wrote anew, of a table whose answers have a judge; false takes the candidates."""
    min_accepted_share: float = Field(0.0, ge=0, le=1)
    max_echo_share: float = Field(1.0, ge=0, le=1)
    max_leak_share: float = Field(1.0, ge=0, le=1)


class Validate(Limits):
    """The limits of every table; `tables` has what differs for some."""

    check_facts: bool
    """Check sizes, objects, relation and colour against the scene (embedded world only)."""
    shard_rows: PositiveInt = 50_000
    """Rows that are held in memory at once; no result depends on it."""
    database: str | None = None
    """SQLAlchemy URL of a database that runs the suites; pandas does when not given. The password belongs into the
    environment (PGPASSWORD) or a password file: dvc.lock keeps this block."""
    tables: dict[str, Limits] = {}

    @field_validator("database")
    @classmethod
    def _has_no_password(cls, url: str | None) -> str | None:
        if url is not None and re.search(r"://[^/@:\s]*:[^/@\s]+@|[?&]\w*password=", url):
            raise ValueError("it holds a password, which dvc.lock would keep: give it in PGPASSWORD or a password file")
        return url

    def limits(self, table: str) -> Limits:
        """The limits of one table."""
        own = self.tables[table].model_dump(exclude_unset=True) if table in self.tables else {}
        return Limits.model_validate(self.model_dump(include=set(Limits.model_fields)) | own)


class Shards(Block):
    """webdataset shards that methods read which train the image tower."""

    urls: str
    """A brace pattern such as `data/shards/{000..099}.tar` or `s3://bucket/laion/{00000..00099}.tar`, or a folder."""
    columns: dict[str, str]
    """Text column -> the member of a sample that holds it: `txt`, or `json:<key>`."""
    samples_per_epoch: PositiveInt | None = None
    """None reads `sizes.json` beside the shards."""
    max_error_share: float = Field(0.05, ge=0, le=1)


class Train(Block):
    """The loop's settings, the same for every method; a method's own are under `methods`."""

    seed: int = 0
    device: str = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    processes: PositiveInt = 1
    """Ranks on this machine, one per GPU; for several machines start torchrun yourself."""
    micro_batch: PositiveInt | None = None
    """Texts, and images, that go through the towers at once; gradients stay exact. None: the whole batch."""
    compile: bool = False
    log_every: PositiveInt = 10
    checkpoint_every: PositiveInt = 50
    keep: PositiveInt = 2
    """How many of the newest resume checkpoints stay."""
    held_out: int = Field(128, ge=0)
    """Pairs that no method trains on, for early metrics; a tenth of all pairs at most."""
    validate_every: PositiveInt | None = 50
    export: Literal["last", "validation/loss", "validation/r_at_5", "validation/ao_at_10"] = "last"
    """Which weights become the encoder: the last, or those that did best by an early metric."""
    shards: Shards | None = None
    state: Path
    """Folder of resume checkpoints and token files; lives outside every stage's outputs."""


class Evaluate(Block):
    """Which benchmarks score every encoder, and how intervals are drawn."""

    benchmarks: tuple[str, ...]
    ks: tuple[PositiveInt, ...]
    bootstrap: PositiveInt
    seed: int = 0


class Compare(Block):
    """The report."""

    gallery_queries: PositiveInt
    gallery_top: PositiveInt = 5


class Margin(Block):
    """How much better than the champion a candidate must be on the primary metric."""

    rule: Literal["half_width", "disjoint", "least"] = "half_width"
    """More than the larger half-width of both 95% intervals; intervals that do not meet; or `least` alone."""
    least: float = Field(0.0, ge=0)
    """Whatever the rule, no smaller gain is enough."""


class Card(Block):
    """What only people can say about a world's encoders, for the model card."""

    worlds: tuple[str, ...] = ()
    """The values of `world.name` that the rest is true of; about other worlds the card says that nothing was stated."""
    data: str = ""
    """What the images and captions are."""
    licences: tuple[str, ...] = ()
    """One for each part: images, captions, base weights, writer of captions."""
    weaknesses: tuple[str, ...] = ()
    """Beside those that the results show."""


class Promote(Block):
    """The gate of the registry."""

    model: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    primary: str
    margin: Margin = Margin()
    guards: dict[str, Annotated[float, Field(ge=0)] | None]
    """Guard metric -> the largest loss against the champion that is allowed; null is no guard, for profiles."""
    validation: tuple[str, ...] = ()
    """Tables that must have passed validation with rows left, besides that no table failed."""
    benchmarks: tuple[str, ...] = ()
    """Benchmarks that the candidate must have results of."""
    clean: bool = False
    """Refuse encoders that were trained from a tree with changes that no commit has."""
    card: Card = Card()


class Settings(Block):
    """All of params.yaml."""

    world: World
    prepare: Prepare
    base: Base
    embed: Embed
    students: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], Student] = {}
    """Name -> who is trained; the adapter of each is `models/students/<name>`."""
    synthesize: Synthesize
    validation: Validate = Field(alias="validate")
    train: Train
    methods: dict[str, dict[str, Any]]
    encoders: tuple[str, ...]
    evaluate: Evaluate
    compare: Compare
    promote: Promote


def load_settings(path: Path = PARAMS) -> Settings:
    """Read and check params.yaml.

    Raises:
        InputError: the file is missing, is no YAML, or has an unknown, missing or ill-typed key;
            the message names the key.
    """
    try:
        raw = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: run the command in the project's folder") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no valid YAML: {error}") from None
    try:
        return Settings.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{path}: {explain_fault(error, Settings)}") from None


def explain_fault(error: ValidationError, model: type[BaseModel]) -> str:
    """The most telling fault of a validation error of `model`, naming its key."""
    # A mistyped key is both unknown and missing; the unknown one shows the user what was typed.
    fault = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] != "extra_forbidden":
        return f"key '{key}': {fault['msg']}"
    close = difflib.get_close_matches(str(fault["loc"][-1]), known_keys(model), n=1)
    hint = f"did you mean '{close[0]}'?" if close else "remove it"
    return f"unknown key '{key}': {hint}"


def known_keys(model: type[BaseModel]) -> set[str]:
    """Every key that any block below `model` knows."""
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        keys.add(field.alias or name)
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                keys |= known_keys(inner)
    return keys
