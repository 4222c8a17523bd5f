"""Settings of `dataset`, `prepare`, `base` and `embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from components.core.settings.block import Block, Seed
from components.core.system.user_files import Bound


class WorldSettings(Block):
    """The data set of the whole pipeline; `name` is the MLflow experiment."""

    name: str
    seed: Seed = 0


_NONE = Path("components/__init__.py")
"""A placeholder for no file: DVC's templates need a path that exists."""


class Depends(Block):
    """Files and folders that no stage makes and that dvc.yaml lists among a stage's dependencies."""

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
    """The source of image-caption pairs."""

    source: str
    """A file of `components/data/sources/`, such as `folder`."""
    counts: Counts
    """Highest number of pairs of each split."""
    rare_word_share: float = Field(0.04, ge=0, le=1)
    """For source `synthetic`: share of alt-texts with a rare word."""
    folder: Path | None = None
    """The input of all sources but `synthetic`, in the format of the source."""
    shards: str | None = None
    """For source `webdataset`: a brace pattern such as `s3://bucket/laion/{00000..00099}.tar`, or a folder of S3; by
    default the shards of `folder`."""
    text: str | None = None
    """Fields whose values make the caption, such as `title, brand, color`, or a template such as
    `{title}[ by {brand}]`; by default the field `caption`, or the first of its other names."""
    item: str | None = None
    """The field with the product of a picture. Pictures of one product are in one split, and are not negatives of each
    other."""
    image: str | None = None
    """The field with the picture, or with its file; by default `image`, or the first of its other names. For source
    `webdataset` the ending of the picture's file, such as `front.jpg`."""
    train_captions: Literal["all", "first", "noisy"] = "all"
    """Captions of a training picture that has several: all, the first, or the first made noisy by rule, as alt-texts of
    the web are. Captions of test and validation pictures, and people's paraphrases, stay."""
    max_caption_words: PositiveInt = 100
    max_unusable_share: float = Field(0.01, ge=0, lt=1)
    """Share of the images of `counts` that may be missing or unreadable; they are left out and listed."""
    max_picture_mb: PositiveInt = 64
    """Largest file of a picture in megabytes; larger ones are left out and counted."""
    max_list_mb: PositiveInt = 4_000
    """Largest file that lists pictures and texts, in megabytes; its rows are held in memory."""
    processes: PositiveInt | None = None
    """Processes that read and decode pictures; by default one per core."""
    state: Path = Path("state/prepare")
    """Results of the checks of pictures; deleting them costs only the time to repeat the checks."""
    exclude_test_by: Literal["images", "rows"] = "images"
    """For sources `semclip_...`: the rows to exclude from training because SemCLIP tests on them: all rows of their
    images or, as in its released code, only these rows."""
    heldout_testsets_dir: Path | None = None
    """The folder of `cliptune evaluate --data-dir`: pairs of its test sets are not trained on. Run `dvc repro -f
    prepare` after a change in it."""
    on_test_leak: Literal["drop", "refuse"] = "drop"
    """The treatment of training and validation pairs that are in a test set of `benchmarks`."""

    @property
    def picture_bound(self) -> Bound:
        """The bound of a picture's file."""
        return Bound.of(self.max_picture_mb, "prepare.max_picture_mb")

    @property
    def list_bound(self) -> Bound:
        """The bound of a file that lists pictures."""
        return Bound.of(self.max_list_mb, "prepare.max_list_mb")


class Contrastive(Block):
    """Contrastive training on the alt-texts."""

    epochs: PositiveInt
    batch_size: PositiveInt
    lr: PositiveFloat
    warmup_steps: int = Field(ge=0)
    weight_decay: float = Field(ge=0)


class Scratch(Contrastive):
    """Contrastive pre-training of a small encoder on the alt-texts."""

    attribute_loss_weight: float = Field(0.0, ge=0)
    """Weight of a second loss, which predicts objects and their places from an image's features. Only drawn scenes have
    these labels; other pairs have no such loss."""


class Fit(Contrastive):
    """Contrastive training of a language model as text tower, and of the projection of a frozen image tower."""

    projection_lr: PositiveFloat
    """Learning rate of the parts that start at random: both projections, and the logit scale. `lr` is that of the
    language model."""
    language_model: str | None = None
    """A Hugging Face folder or name; by default all-MiniLM-L6-v2 from its package."""


class Base(Block):
    """The starting encoder: shipped, trained here, an open_clip name and tag, an encoder folder or weights file, or an
    image tower that timm publishes."""

    source: Literal["shipped", "scratch", "open_clip", "timm", "file"]
    model: str
    """An open_clip model name, or the name of a config file in `components/encoders/adapter/models/`."""
    pretrained: str | None = None
    """For source `open_clip`: the tag of its weights, as `cliptune encoders` lists them."""
    file: Path | None = None
    """For source `file`; for `timm` the image tower's weights, if they are not downloaded."""
    package: str | None = None
    """For source `timm`: a Python package with the image tower's weights, instead of `file`."""
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
    """Resize both sides of a picture without keeping their ratio, and use ImageNet's mean and deviation, as SemCLIP's
    released code does, in all stages, in serving and in exports: it becomes the base's preparation. By default pictures
    are prepared as the image tower learned."""
    processes: PositiveInt = 1
    """Ranks on this machine, one per GPU; for several machines start torchrun yourself."""
    check_given: bool = True
    """Whether vectors of source `embeddings` must fit the base: a sample is embedded again, pictures or captions."""
    part: PositiveInt = 4096
    """Pairs that are embedded and saved together, so that a stopped stage resumes after them."""
    state: Path = Path("state/embed")
    """Finished parts, outside every stage's outputs; emptied at the end."""
