"""Claims of papers as comparisons that can be decided: files of infra/claims/, written before anything was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, NonNegativeFloat, ValidationError, model_validator

from components.core.discovery import choose
from components.core.errors import InputError
from components.core.settings import Block, explain_fault
from components.core.settings.yaml_text import explain_yaml, read_yaml

CLAIMS = Path("infra/claims")


class Part(Block):
    """One comparison that a claim stands on: an encoder's metric against another encoder's, or against a number.

    Attributes:
        metric: full name.
        less: another metric of the same queries, taken off `metric` for both sides: what the one gives over the other.
        encoder: whose value it is.
        better_than: an encoder, or a number such as what guessing gives; the value must be better by more than `by`.
        not_worse_than: an encoder, or a number; the value may be worse by less than `by`.
        by: how much in the metric's own unit; a share of 0.01 is a point.
    """

    metric: str
    less: str = ""
    encoder: str
    better_than: str | float | None = None
    not_worse_than: str | float | None = None
    by: NonNegativeFloat

    @model_validator(mode="after")
    def _has_one_side(self) -> Part:
        if (self.better_than is None) == (self.not_worse_than is None):
            raise ValueError("give one of better_than and not_worse_than")
        return self

    @property
    def other(self) -> str | float:
        """What it is compared with."""
        found = self.better_than if self.better_than is not None else self.not_worse_than
        assert found is not None
        return found

    @property
    def bound(self) -> float:
        """What the improvement must exceed."""
        return self.by if self.better_than is not None else -self.by

    @property
    def encoders(self) -> tuple[str, ...]:
        """The encoders that it reads."""
        return (self.encoder, self.other) if isinstance(self.other, str) else (self.encoder,)


class Claim(Block):
    """What a paper says, and the comparisons that decide whether it holds here.

    Attributes:
        paper: short name, and where in it.
        says: in one sentence.
        parts: all of them must hold.
        conditions: how encoders and data differ from the paper's, so that its figures need not be met.
        note: what was tried where it does not hold, and the likely cause. Neither changes a verdict.
    """

    paper: str
    says: str
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    conditions: str = ""
    note: str = ""


class Claims(Block):
    """A file of claims.

    Attributes:
        families: what users need -> the metric that stands for it; one encoder for all needs is judged by them.
        metrics: what the table of all encoders shows.
        claims: short name -> claim.
    """

    families: dict[str, str]
    metrics: tuple[str, ...]
    claims: dict[str, Claim]


def read_claims(name: str, folder: Path = CLAIMS) -> Claims:
    """A file of claims.

    Raises:
        InputError: there is no such file, or it has an unknown, missing or ill-typed key.
    """
    path = folder / f"{choose(sorted(found.stem for found in folder.glob('*.yaml')), name, 'claims')}.yaml"
    try:
        return Claims.model_validate(read_yaml(path.read_text("utf-8")))
    except yaml.YAMLError as error:
        raise InputError(f"{path} is no valid YAML: {explain_yaml(error)}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain_fault(error, Claims)}") from None
