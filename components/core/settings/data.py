"""Settings of `world`, `prepare`, `base` and `embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from components.core.settings.block import Block, Device, Seed
from components.core.settings.scale import Scale


class World(Block):
    """What the whole pipeline is about; `name` is the MLflow experiment."""

    name: str
    seed: Seed = 0


_NONE = Path("components/__init__.py")
"""Stands for no file: DVC's templates need a path that exists."""


class Depends(Block):
    """Files that no stage makes and that dvc.yaml lists among a stage's dependencies; folders count whole."""

    prepare: Path = _NONE
    base: Path = _NONE
    students: Path = _NONE
    synthesize: Path = _NONE
    train: Path = _NONE


class Counts(Block):
    """Pairs per split."""

    train: PositiveInt
    val: PositiveInt
    test: PositiveInt

    @property
    def total(self) -> int:
        """Pairs of all splits."""
        return self.train + self.val + self.test


class Prepare(Block):
    """Where image-caption pairs come from."""

    source: str
    counts: Counts
    rare_word_share: float = Field(0.04, ge=0, le=1)
    folder: Path | None = None
    """What all sources but `embedded` read, in the format that the source's file says."""
    shards: str | None = None
    """For source `webdataset`: a brace pattern such as `s3://bucket/laion/{00000..00099}.tar`, or a folder of S3; the
    shards of `folder` when not given."""
    max_caption_words: PositiveInt = 100
    max_unusable_share: float = Field(0.01, ge=0, lt=1)
    """Images that may be missing or unreadable, of all that `counts` asks for; they are left out and listed."""
    processes: PositiveInt | None = None
    """That read and decode pictures; one per core when not given."""
    state: Path = Path("state/prepare")
    """What is known of the pictures that were checked; deleting it costs only the time to check them again."""
    scale: Scale | None = None
    """How flows spread all of the source's pictures over workers, who must share `state`, before the stage; not at all
    when not given."""
    keep_out: Literal["images", "rows"] = "images"
    """For sources `semclip_...`: what does not train of the rows that SemCLIP tests on, all rows of their images or, as
    its released code has it, these rows alone."""
    benchmarks: Path | None = None
    """The folder of `cliptune evaluate --data`: what its test sets hold is not trained on. Run `dvc repro -f prepare`
    once something was put there."""
    leaks: Literal["drop", "refuse"] = "drop"
    """What becomes of pairs to train or validate with that a test set of `benchmarks` holds."""


class Contrastive(Block):
    """Contrastive training on the alt-texts."""

    epochs: PositiveInt
    batch_size: PositiveInt
    lr: PositiveFloat
    warmup_steps: int = Field(ge=0)
    weight_decay: float = Field(ge=0)


class Scratch(Contrastive):
    """Contrastive pre-training of a small encoder on the alt-texts."""

    naming: float = Field(0.0, ge=0)
    """Weight of a second loss: from an image's features, what it shows and where. Only drawn scenes say
    so; for other pairs it is left out."""


class Fit(Contrastive):
    """Contrastive training of a language model as text tower, and of the projection of an image tower that stays."""

    projection_lr: PositiveFloat
    """Of what starts at random: both projections, and the logit scale. `lr` is the language model's."""
    language_model: str | None = None
    """A Hugging Face folder or name; all-MiniLM-L6-v2 from its package when not given."""


class Base(Block):
    """The starting encoder: shipped, trained here, an open_clip name and tag, a saved encoder folder or weights file,
    or an image tower that timm publishes."""

    source: Literal["shipped", "scratch", "open_clip", "timm", "file"]
    model: str
    """An open_clip model name, or the name of a config file in `components/encoders/adapter/models/`."""
    pretrained: str | None = None
    file: Path | None = None
    """For source `file`; for `timm` where the image tower's weights lie, if they are not to be fetched."""
    package: str | None = None
    """For source `timm`: a Python package that holds the image tower's weights, instead of `file`."""
    scratch: Scratch | None = None
    """For source `scratch`, and the recipe of the base that source `shipped` takes."""
    fit: Fit | None = None
    """For source `timm`: fit a text tower to the image tower; without it the text tower's weights are random."""

    @model_validator(mode="after")
    def _complete(self) -> Base:
        if self.source == "scratch" and self.scratch is None:
            raise ValueError("source 'scratch' needs `scratch`: name its epochs, batch_size, lr and so on")
        return self


class Embed(Block):
    """Image embeddings, made once."""

    batch_size: PositiveInt
    squash: bool = False
    """Resize both sides of a picture, whatever their ratio, and use ImageNet's mean and deviation, as SemCLIP's
    released code does. By default the shorter side is resized and the middle cut out, as methods that train the image
    tower always do."""
    processes: PositiveInt = 1
    """Ranks on this machine, one per GPU; for several machines start torchrun yourself."""
    device: Device = "auto"
    part: PositiveInt = 4096
    """Pairs that are embedded together and kept, so that a stage that was stopped goes on after them."""
    state: Path = Path("state/embed")
    """Parts that are done; outside every stage's outputs, and emptied at the end."""
    scale: Scale | None = None
    """How flows spread the parts over workers, who must share `state`, before the stage; not at all when not given."""
