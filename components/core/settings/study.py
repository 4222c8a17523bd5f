"""Settings of `seed`, `repeat`, `repeat_mix` and `claims`."""

from __future__ import annotations

from components.core.settings.block import Block, Seed


class Study(Block):
    """What is trained again with other seeds, and which claims are asked of the results.

    Attributes:
        seeds: besides `train.seed`, whose encoders are those of stages `base` and `train`.
        encoders: entries of `methods` that every seed trains again; the base is trained again by itself.
        mixes: entries of `mixes` that every seed makes again, of its own encoders.
        claims: files of infra/claims/, without .yaml.
    """

    seeds: tuple[Seed, ...] = ()
    encoders: tuple[str, ...] = ()
    mixes: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
