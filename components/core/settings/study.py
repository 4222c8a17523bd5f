"""Settings of `seed`, `repeat` and `claims`."""

from __future__ import annotations

from components.core.settings.block import Block, Seed


class Study(Block):
    """What is trained again with other seeds, and which claims are asked of the results.

    Attributes:
        seeds: besides `train.seed`, whose encoders are those of stages `base` and `train`.
        encoders: entries of `methods` that every seed trains again; the base is trained again by itself.
        claims: files of infra/claims/, without .yaml.
    """

    seeds: tuple[Seed, ...] = ()
    encoders: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
