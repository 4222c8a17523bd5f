"""The base class of all blocks of settings, and types that several blocks use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt

from components.core.system.discovery import FOLDER_NAME


def _named(name: str) -> str:
    if not FOLDER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} becomes a folder and a DVC stage: use 1 to 100 of A-Z, a-z, 0-9, _, - and .")
    return name


Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""The range that both NumPy and torch accept."""
Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]
"""`auto` is the GPU if there is one; `cuda:1` is the second of several."""


Name = Annotated[str, AfterValidator(_named)]
"""A name that becomes part of a path, of a stage and of a command."""


class Block(BaseModel):
    """A frozen group of settings that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Scale(Block):
    """How a flow spreads work over workers, which may be on many machines."""

    shards: PositiveInt = 2
    runner: Literal["threads", "ray", "dask"] = "threads"
    workers: PositiveInt = 2
    """Number of shards that run at the same time."""
    address: str | None = None
    """Address of a running Ray or Dask cluster; by default a local one is started."""
