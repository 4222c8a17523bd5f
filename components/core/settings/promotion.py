"""Settings of `promote`: the rules of the gate and what the model card says."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from components.core.settings.block import Block


class Margin(Block):
    """How much better than the champion a candidate must be on the primary metric."""

    rule: Literal["half_width", "disjoint", "least"] = "half_width"
    """More than the larger half-width of both 95% intervals; intervals that do not meet; or `least` alone."""
    least: float = Field(0.0, ge=0)
    """Whatever the rule, no smaller gain is enough."""


class Card(Block):
    """What only people can say about a world's encoders, for the model card."""

    worlds: tuple[str, ...] = ()
    """The values of `world.name` that the rest is true of; about other worlds the card says that nothing was stated."""
    data: str = ""
    """What the images and captions are."""
    licences: tuple[str, ...] = ()
    """One for each part: images, captions, base weights, writer of captions."""
    weaknesses: tuple[str, ...] = ()
    """Beside those that the results show."""


class Promote(Block):
    """The gate of the registry."""

    model: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    primary: str
    margin: Margin = Margin()
    guards: dict[str, Annotated[float, Field(ge=0)] | None]
    """Guard metric -> the largest loss against the champion that is allowed; null is no guard, for profiles."""
    validation: tuple[str, ...] = ()
    """Tables that must have passed validation with rows left, besides those that the candidate was trained on."""
    benchmarks: tuple[str, ...] = ()
    """Benchmarks that the candidate must have results of."""
    clean: bool = False
    """Refuse encoders that were trained from a tree with changes that no commit has."""
    least_wins: float | None = Field(None, ge=0, lt=1)
    """Least share of blind votes that a candidate must have won against the champion: the lower end of its interval."""
    webhook: str | None = Field(
        None, pattern=r"^https://[^\s@]+$|^http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/[^\s@]*)?$"
    )
    """Address that is told when the champion changes, signed with the secret in CLIPTUNE_WEBHOOK_SECRET."""
    card: Card = Card()
