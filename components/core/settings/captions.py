"""Settings of `synthesize`, `students` and `validate`: prompt tasks, language models, limits of their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from components.core.settings.block import Block, Name, Seed


class Task(Block):
    """One prompt task: its input, and the number of answers to each row."""

    table: Name
    """The table of its answers, a key of `validate.tables`."""
    input: Path
    """A Parquet file or a folder of `data` with the captions, or with the answers of another task."""
    samples: PositiveInt = 1
    """Number of answers to each row."""
    always_ask_first: NonNegativeInt = 0
    """Number of first questions that are sent to the model although `synthesize.cached_answers` has their answers. Not
    for a task that reads another task's answers, which do not exist yet when the replay is imported."""
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(0.1, gt=0, le=1)
    max_tokens: PositiveInt = 40
    max_captions: PositiveInt | None = None
    """Number of captions of this task; by default `synthesize.max_captions`."""
    pairs: PositiveInt | None = None
    """For a task about two captions: number of ordered pairs to draw; by default the number of captions."""
    caption_length: tuple[PositiveInt, PositiveInt] | None = None
    """Minimum and maximum number of words of its captions; by default the task's own limits."""
    llm: str | None = None
    """A key of `synthesize.llms`; by default `synthesize.default_llm`."""
    judge_llm: str | None = None
    """A key of `synthesize.llms`: this model must say that an answer means the same as its source, and its source the
    same as the answer. Other answers are rejected with reason `judge`. For tasks that write paraphrases."""
    one_per_image: bool = False
    """Use one caption of each image, drawn by `dataset.seed`, so that `max_captions` counts images. Tasks about two
    captions always do, because two captions of one image have no difference."""
    prompt: Literal["own", "published"] = "own"
    """The wording of the question: the task's own, or the exact one of its paper or released code."""
    pictures: bool = False
    """Send the captions' pictures to the model too, if the task and the engine support it."""


class Synthesize(Block):
    """The captions that language models rewrite, the models, and the store of their answers."""

    llms: dict[str, dict[str, Any]]
    """Name of a model -> `engine` (a file of `components/captions/generating/engines/`) and the engine's settings."""
    default_llm: str
    """Default model of tasks."""
    max_captions: PositiveInt
    """Number of training captions to rewrite."""
    store: str
    """SQLAlchemy URL of the generation store, outside every stage's outputs."""
    cached_answers: Path | None = None
    """A Parquet export of generations to import into the store first."""
    tasks: dict[Name, Task]
    max_failed_share: float = Field(0.05, ge=0, le=1)
    """Share of a task's questions that may fail; if more fail, the stage ends with an error, and its next run repeats
    them."""

    def model_of(self, task: Task) -> str:
        """The model of a task: a key of `llms`."""
        return task.llm or self.default_llm

    def answers(self, name: str) -> Path:
        """The file of a task's answers in `data/captions`."""
        return Path(self.tasks[name].table, f"{name}.parquet")

    def before(self, name: str) -> str | None:
        """The task whose answers are the input of a task; None for a task that reads another table."""
        read = self.tasks[name].input
        return next((other for other in self.tasks if read == Path("data/captions") / self.answers(other)), None)


class WrittenTestSet(Block):
    """Test queries that a language model writes of the captions of the test and validation splits.

    For data without paraphrases by people; the stage makes the test set once, see `components.captions.test_queries`.
    """

    llm: str | None = None
    """The model that writes them, a key of `synthesize.llms`; null writes none."""
    judge_llm: str | None = None
    """The model that judges them; by default the one that writes, with another prompt."""
    max_captions: PositiveInt = 1000
    """Number of test images whose caption is used, drawn by `dataset.seed`."""
    max_validation_captions: PositiveInt = 300
    """The same for the validation split, on which settings are tuned."""
    paraphrases: int = Field(2, ge=1, le=3)
    """Number of paraphrases of a caption; it has one negation and one swap."""
    temperature: float = Field(0.7, ge=0)
    top_p: float = Field(0.95, gt=0, le=1)
    max_tokens: PositiveInt = 60
    min_accepted_share: float = Field(0.2, ge=0, le=1)
    """Minimum share of paraphrases that rules and judge accept; with fewer the stage fails."""


class Student(Block):
    """A LoRA adapter of a causal language model that learns from a teacher's answers (ParaCLIP, section 2.1)."""

    tasks: tuple[str, ...] = Field(min_length=1)
    teacher: str | tuple[Path, ...] = Field(min_length=1)
    """A key of `synthesize.llms`, or files of hand-written lessons."""
    captions: PositiveInt | None = None
    """Number of captions that a model as teacher rewrites for each task."""
    per_task: PositiveInt | None = None
    """Number of lessons of each task, drawn by `seed`; by default all."""
    base: str | None = None
    """A Hugging Face folder or name; by default SmolLM2-135M-Instruct from its package."""
    rank: PositiveInt = 8
    """Rank of the adapter, which is on all linear layers and scaled by two."""
    lr: PositiveFloat = 0.001
    epochs: PositiveInt = 4
    batch_size: PositiveInt = 16
    seed: Seed = 0
    held_out: float = Field(0.05, gt=0, lt=1)
    """Share of the lessons that are never trained on."""
    acceptance: int = Field(32, ge=0)
    """Number of held-out lessons of each task on which base and student are compared."""
    merge: bool = False
    """Also write base and adapter as one model, to the folder `merged`, for engines that take no adapter."""
    processes: PositiveInt = 1
    """Ranks on this machine, one per GPU; for several machines start torchrun yourself."""
    micro_batch: PositiveInt | None = None
    """Most lessons in one pass through the model on each rank; gradients stay exact. None: all of the rank's."""
    checkpoint_every: PositiveInt = 50
    """Steps between two checkpoints, from which a stopped run resumes."""

    @model_validator(mode="after")
    def _asks_about_captions(self) -> Student:
        if isinstance(self.teacher, str) and self.captions is None:
            raise ValueError("a model as teacher needs `captions`: set the number of captions that it rewrites")
        return self


Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]


class Limits(Block):
    """Limits of a row of a synthesised table, and of shares of its rows; null removes a limit."""

    min_words: PositiveInt = 3
    max_words: PositiveInt = 30
    min_characters: int = Field(0, ge=0)
    """Minimum length of a difference."""
    min_similarity: float = Field(0.3, ge=-1, le=1)
    """Minimum cosine of answer and source by MiniLM."""
    max_similarity: float | None = Field(None, ge=-1, le=1)
    measure_similarity: bool = True
    """Measure the similarity in meaning; false skips both limits above, and saves MiniLM's milliseconds per text."""
    min_new_words: int = Field(2, ge=0)
    """Minimum number of content words of x'' and of rewrites that the source does not have."""
    min_overlap: float = Field(0.0, ge=0, le=1)
    """Minimum share of a hard negative's content words that the caption has."""
    both_orders: bool = False
    """Keep each accepted difference also with its two pictures, and the words "first" and "second", exchanged."""
    min_score: float | None = Field(None, ge=0, le=1)
    """Minimum score of a difference by its judge; null keeps all."""
    language: Language | tuple[Language, ...] | None = "en"
    """Language of the captions, or several, the most frequent first, as ISO 639-1 codes; null accepts any. Of several
    or any, the language of each caption is detected. Prompts name it where it is not English, rules that read English
    apply to English captions only, and texts that are certainly in another language are rejected, except with null."""
    keep_numbers: bool = True
    """Require the source's numbers and measures, in digits or words, in paraphrases and rewrites, and no other counts,
    measures or prices."""
    keep_names: bool = True
    """Require the source's capitalised names in paraphrases and rewrites, and no others."""
    keep_colours: bool = True
    """Reject paraphrases and rewrites with another colour in place of one of the source's; synonyms are allowed."""
    keep_negations: bool = True
    """Reject paraphrases and rewrites that deny something that the source does not deny, or the reverse."""
    keep_details: bool = False
    """Require the source's colours, sizes, garments, breeds, materials, body parts, places and people, or synonyms of
    them, in paraphrases and rewrites."""
    reject_added_details: bool = False
    """Reject paraphrases and rewrites with such a detail, or a number, that the source lacks."""
    reject_injections: bool = True
    """Reject rows whose caption or text tries to instruct a language model."""
    max_same_share: float = Field(0.005, ge=0, le=1)
    """Share of the captions that may have the same answer, if they are three or more; from there it is rejected."""
    filters: Literal["paper"] | bool = True
    """Reject answers by their measurements. `paper` uses only the criteria of the table's paper or its released code;
    false uses none (PC-CLIP's table 14). Both still measure all, and reject answers that are too long for the encoder
    or leak evaluation data."""
    apply_judge: bool = True
    """Of a table with a judge, use the answers that the judge accepted or rewrote; false uses the candidates."""
    min_accepted_share: float = Field(0.0, ge=0, le=1)
    """Minimum share of accepted rows; with fewer the stage fails."""
    max_echo_share: float = Field(1.0, ge=0, le=1)
    """Largest share of answers that repeat the prompt."""
    max_leak_share: float = Field(1.0, ge=0, le=1)
    """Largest share of answers that are in a test set."""


class TableLimits(Limits):
    """A synthesised table: its folder, and the limits that differ from the common ones."""

    folder: str = Field(pattern=r"^data/(validated|untrained)(/[A-Za-z0-9_-]+)*$")
    """Folder of its rows: methods name it, or a folder above it, in `train_data`. No method reads `data/untrained`."""


class Validate(Limits):
    """The common limits of all tables, and the tables."""

    check_scene_facts: bool
    """Check sizes, objects, relation and colour against the drawn scene (demo only)."""
    similarity_model: str | None = None
    """A sentence-transformers model (a folder, or a name in Hugging Face's cache) for similarities of all captions; by
    default all-MiniLM-L6-v2 from its package, which reads English and measures English captions only."""
    accept_unchecked: bool = False
    """Accept tables in other languages than English although neither a `similarity_model` nor a judge compares their
    meaning with the captions'."""
    shard_rows: PositiveInt = 50_000
    """Rows in memory at once; no result depends on it."""
    tables: dict[Name, TableLimits] = Field(default_factory=dict)

    def limits(self, table: str) -> Limits:
        """The limits of one table."""
        given = self.tables.get(table)
        special = given.model_dump(exclude_unset=True, exclude={"folder"}) if given else {}
        return Limits.model_validate(self.model_dump(include=set(Limits.model_fields)) | special)

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the captions; empty if any is accepted."""
        return (self.language,) if isinstance(self.language, str) else self.language or ()

    def file(self, table: str) -> Path:
        """The file of a table's accepted rows."""
        return Path(self.tables[table].folder, f"{table}.parquet")
