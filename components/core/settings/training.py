"""Settings of `train`: the loop, shards, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt

from components.core.settings.block import Block, Device, Seed


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

    seed: Seed = 0
    device: Device = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Of the towers' passes; weights, optimiser and losses are float32. `auto`: bf16 where the GPU, or the processor
    by AVX512-BF16 or AMX, multiplies it in hardware, else fp32."""
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
