"""Settings of `mix`."""

from __future__ import annotations

from components.core.settings.block import Block


class Mix(Block):
    """An encoder made of two others' weights, which may be mixes themselves.

    Attributes:
        first, second: entries of `methods` or `mixes`; the base's own weights count for what the shares leave.
        shares: how much of what each of them learnt is added to the base.
    """

    first: str
    second: str
    shares: tuple[float, float]
