"""Settings of `evaluate` and `compare`."""

from __future__ import annotations

from pydantic import PositiveInt

from components.core.settings.block import Block, Seed


class Evaluate(Block):
    """Which benchmarks score every encoder, and how intervals are drawn."""

    benchmarks: tuple[str, ...]
    ks: tuple[PositiveInt, ...]
    bootstrap: PositiveInt
    seed: Seed = 0


class Compare(Block):
    """The report."""

    gallery_queries: PositiveInt
    gallery_top: PositiveInt = 5
