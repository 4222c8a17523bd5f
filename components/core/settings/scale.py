"""Settings of work that flows spread over workers."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from components.core.settings.block import Block


class Scale(Block):
    """How a flow spreads work over workers, which may be on many machines."""

    shards: PositiveInt = 2
    runner: Literal["threads", "ray", "dask"] = "threads"
    workers: PositiveInt = 2
    """Shards at work at the same time."""
    address: str | None = None
    """A running Ray or Dask cluster; a local one is started when not given."""
