"""Settings of `train`, `mix`, `evaluate`, `compare`, `promote` and of the study's stages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from components.core.settings.block import Block, Name, Seed


class Shards(Block):
    """webdataset shards for methods that train the image tower."""

    urls: str
    """A brace pattern such as `data/shards/{000..099}.tar` or `s3://bucket/laion/{00000..00099}.tar`, or a folder."""
    columns: dict[str, str]
    """Text column -> the member of a sample that holds it: `txt`, or `json:<key>`."""
    samples_per_epoch: PositiveInt | None = None
    """None reads `sizes.json` next to the shards."""
    max_error_share: float = Field(0.05, ge=0, le=1)


class Train(Block):
    """The training loop, the same for every method; settings of a method are under `methods`."""

    seed: Seed = 0
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Precision of the towers' passes; weights, optimiser and losses are float32. `auto` is bf16 if the GPU, or the
    processor by AVX512-BF16 or AMX, multiplies it in hardware, else fp32."""
    processes: PositiveInt = 1
    """Ranks on this machine, one per GPU; for several machines start torchrun yourself."""
    micro_batch: PositiveInt | None = None
    """Texts, and images, in one pass through the towers; gradients stay exact. None: the whole batch."""
    compile: bool = False
    """Whether torch.compile compiles the towers."""
    log_every: PositiveInt = 10
    checkpoint_every: PositiveInt = 50
    """Number of steps between resume checkpoints."""
    keep_checkpoints: PositiveInt = 2
    """Number of resume checkpoints to keep, the newest."""
    validation_images: int = Field(128, ge=0)
    """Pairs that no method trains on, for early metrics; at most a tenth of all pairs."""
    validate_every: PositiveInt | None = 50
    """Number of steps between early metrics; None: none are measured."""
    select_checkpoint: Literal["last", "validation/loss", "validation/r_at_5", "validation/ao_at_10"] = "last"
    """Weights that become the encoder: the last, or those with the best value of an early metric."""
    log_checkpoints: Literal["best", "all", "none"] = "best"
    """MLflow logged models: of the encoder at its step; `all` also of the kept resume checkpoints, with their files."""
    keep_index: bool = False
    """Refuse methods that train an image tower: the vectors of an existing index stay valid. Checked after training."""
    shards: Shards | None = None
    checkpoint_dir: Path
    """Folder of resume checkpoints and token files, outside every stage's outputs."""


class Mix(Block):
    """An encoder made of two others' weights, which may be mixes themselves.

    Attributes:
        a, b: entries of `methods` or `mixes`.
        weights: coefficients of the differences of both to the base, which are added to the base's weights.
    """

    a: Name
    b: Name
    weights: tuple[float, float]


class Evaluate(Block):
    """The benchmarks that score every encoder, and how intervals are drawn."""

    benchmarks: tuple[str, ...]
    """Benchmarks of `components/evaluation/benchmarks/project/`."""
    top_k: tuple[PositiveInt, ...]
    """Depths k of the metrics `..._at_k`."""
    bootstrap: PositiveInt
    """Number of resamples of the 95% intervals of correlations; others are in closed form."""
    seed: Seed = 0


class Compare(Block):
    """The report."""

    gallery_queries: PositiveInt
    """Number of queries whose retrieved pictures the report shows."""
    gallery_top: PositiveInt = 5


class Card(Block):
    """Facts of the model card that only people know."""

    datasets: tuple[str, ...] = ()
    """The values of `dataset.name` for which the facts hold; for other datasets the card states none."""
    data: str = ""
    """Description of the images and captions."""
    licences: tuple[str, ...] = ()
    """One for each part: images, captions, base weights, writer of captions."""
    weaknesses: tuple[str, ...] = ()
    """Weaknesses that the results do not show."""


class Promote(Block):
    """The gate of the registry."""

    model: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    """Name of the registered model in MLflow."""
    metric: str
    """The primary metric, such as `paraphrased_retrieval/ao_at_10`."""
    min_gain: float = Field(0.0, ge=0)
    """The gain that the whole interval of the difference to the champion must exceed."""
    guards: dict[str, Annotated[float, Field(ge=0)] | None]
    """Guard metric -> the loss against the champion that its interval must exclude; null removes a guard."""
    require_valid_tables: tuple[str, ...] = ()
    """Tables that must have passed validation with rows left, besides the training tables of the candidate."""
    require_benchmarks: tuple[str, ...] = ()
    """Benchmarks for which the candidate must have results."""
    require_clean_git: bool = False
    """Refuse encoders that were trained from a checkout with uncommitted changes."""
    min_reviewed: float | None = Field(None, ge=0, le=1)
    """Minimum share of written test queries that people found right; the lower end of its interval must reach it,
    at any look."""
    card: Card = Card()

    @property
    def active_guards(self) -> dict[str, float]:
        """`guards` without those that are removed by null."""
        return {name: loss for name, loss in self.guards.items() if loss is not None}


class Study(Block):
    """The encoders to train with other seeds, and the claims to check on their results.

    Attributes:
        seeds: seeds besides `train.seed`, which belongs to stages `base` and `train`.
        encoders: entries of `methods` to train with every seed; the base is always included.
        mixes: entries of `mixes` to make of the encoders of every seed.
    """

    seeds: tuple[Seed, ...] = ()
    encoders: tuple[Name, ...] = ()
    mixes: tuple[Name, ...] = ()
    claims: tuple[Name, ...] = ()
