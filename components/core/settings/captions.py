"""Settings of `synthesize` and `students`: prompt tasks, engines, language models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from components.core.settings.block import Block, Seed
from components.core.settings.scale import Scale


class Task(Block):
    """One prompt task: the table it reads and how many answers each row gets."""

    table: str
    """The synthesised table that its answers belong to, a key of `validate.tables`."""
    input: Path
    samples: PositiveInt = 1
    live: NonNegativeInt = 0
    """So many of its first questions are asked although `synthesize.replay` has their answers. Not for a task that
    reads another task's answers, which are not there yet when the replay is imported."""
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(0.1, gt=0, le=1)
    max_tokens: PositiveInt = 40
    captions: PositiveInt | None = None
    """How many captions this task takes; all of `synthesize.captions` when not given."""
    pairs: PositiveInt | None = None
    """For a task about two captions: how many ordered pairs of them are drawn; as many as captions when not given."""
    words: tuple[PositiveInt, PositiveInt] | None = None
    """Ask about captions of so many words alone, fewest and most; the task's own limits when not given."""
    model: str | None = None
    """Who answers, a key of `synthesize.models`; `synthesize.model` when not given."""
    one_per_image: bool = False
    """Ask about one caption of each image, drawn by `world.seed`, so that `captions` counts images. Tasks about two
    captions always do, because two captions of one image have no difference."""
    prompt: Literal["own", "published"] = "own"
    """Which wording of the question: the task's own, or that of its paper or released code to the letter."""
    pictures: bool = False
    """Show the model the captions' pictures too, where the task and the engine can."""


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
    max_failed_share: float = Field(0.05, ge=0, le=1)
    """Share of a task's questions that may fail; with more the stage ends with an error, and its next run asks these
    again."""
    scale: Scale = Scale()
    """How the flow `synthesize-captions` spreads a task's rows over workers."""

    def model_of(self, asked: Task) -> str:
        """Who answers a task: a key of `models`."""
        return asked.model or self.model

    def answers(self, name: str) -> Path:
        """Where in `data/captions` a task's answers are written."""
        return Path(self.tasks[name].table, f"{name}.parquet")

    def before(self, name: str) -> str | None:
        """The task whose answers a task asks about; None for a task that reads another table."""
        read = self.tasks[name].input
        return next((other for other in self.tasks if read == Path("data/captions") / self.answers(other)), None)


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
    seed: Seed = 0
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
