"""Claims of papers as comparisons that can be decided, in files of research/papers/, and their verdicts.

A part holds if the whole 95% interval over seeds and queries and every seed's value exceed its bound. It does not hold
if all of them fall short of it, in an interval that holds for all parts of the claim at once. Otherwise it is
undecided. A claim holds if all of its parts hold, and does not hold if one does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import Field, NonNegativeFloat, ValidationError, model_validator

from components.core.settings import Block, explain_fault
from components.core.settings.block import explain_yaml, read_yaml
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.evaluation.scoring.intervals import LEVEL, Interval
from research.claims.results import ClaimValue, Results

CLAIMS = Path("research/papers")


class ClaimPart(Block):
    """One comparison of a claim: an encoder's metric against another encoder's, or against a number.

    Attributes:
        less: another metric of the same queries, which is subtracted from `metric` on both sides.
        better_than: an encoder, or a number such as chance; the value must be better by more than `by`.
        not_worse_than: an encoder, or a number; the value may be worse by less than `by`.
        by: margin in the metric's unit; a share of 0.01 is a point.
    """

    metric: str
    less: str = ""
    encoder: str
    better_than: str | float | None = None
    not_worse_than: str | float | None = None
    by: NonNegativeFloat

    @model_validator(mode="after")
    def _has_one_side(self) -> ClaimPart:
        if (self.better_than is None) == (self.not_worse_than is None):
            raise ValueError("give one of better_than and not_worse_than")
        return self

    @property
    def other(self) -> str | float:
        """The encoder or number that it is compared with."""
        other = self.better_than if self.better_than is not None else self.not_worse_than
        assert other is not None
        return other

    @property
    def bound(self) -> float:
        """The value that the improvement must exceed."""
        return self.by if self.better_than is not None else -self.by

    @property
    def encoders(self) -> tuple[str, ...]:
        """The encoders that it reads."""
        return (self.encoder, self.other) if isinstance(self.other, str) else (self.encoder,)


class Claim(Block):
    """A claim of a paper, and the comparisons that decide whether it holds here.

    Attributes:
        paper: short name, and the place in it.
        says: the claim in one sentence.
        parts: all of them must hold.
        conditions: differences of encoders and data from the paper's, so that figures may differ.
        note: attempts and the likely cause, if it does not hold. Neither changes a verdict.
        added: date and reason of a claim that was written after the first verdicts.
    """

    paper: str
    says: str
    parts: Annotated[tuple[ClaimPart, ...], Field(min_length=1)]
    conditions: str = ""
    note: str = ""
    added: str = ""


class Bars(Block):
    """A plot of some encoders' metrics, such as a paper's ablation."""

    title: str
    encoders: Annotated[tuple[str, ...], Field(min_length=1)]
    metrics: Annotated[tuple[str, ...], Field(min_length=1)]


class Claims(Block):
    """A file of claims.

    Attributes:
        families: need of users -> its metric; one encoder for all needs is judged by them.
        metrics: columns of the table of all encoders.
        plots: drawn below the plots of the families.
    """

    families: dict[str, str]
    metrics: tuple[str, ...]
    plots: tuple[Bars, ...] = ()
    claims: dict[str, Claim]


def read_claims(name: str, folder: Path = CLAIMS) -> Claims:
    """A file of claims."""
    path = folder / f"{choose(sorted(file.stem for file in folder.glob('*.yaml')), name, 'claims')}.yaml"
    try:
        return Claims.model_validate(read_yaml(path.read_text("utf-8")))
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {explain_yaml(error)}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain_fault(error, Claims)}") from None


Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class JudgedPart:
    """A part with its measurement; None if an encoder or the metric is not in the study.

    `strict` is the interval of as many parts at once: one of several true parts is below its bound more often.
    """

    part: ClaimPart
    found: ClaimValue | None
    strict: Interval | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of this part."""
        if self.found is None:
            return "not measured"
        mean, each, bound = self.found.mean, self.found.each, self.part.bound
        if mean.low > bound and min(each) > bound:
            return "holds"
        if (self.strict or mean).high < bound and max(each) < bound:
            return "does not hold"
        return "undecided"


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with its parts."""

    name: str
    claim: Claim
    parts: tuple[JudgedPart, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the claim."""
        verdicts = {part.verdict for part in self.parts}
        order: Sequence[Verdict] = ("does not hold", "not measured", "undecided")
        return next((verdict for verdict in order if verdict in verdicts), "holds")


def judge(name: str, claim: Claim, results: Results) -> JudgedClaim:
    """Measure every part of a claim."""
    # Bonferroni's level is Holm's of the clearest part, and one part that does not hold is enough. That all hold needs
    # no correction: the claim holds by chance no more often than its worst part does.
    strict = 1 - (1 - LEVEL) / len(claim.parts)
    parts = []
    for part in claim.parts:
        found, of_all = _measure(part, results, LEVEL), _measure(part, results, strict)
        parts.append(JudgedPart(part, found, None if of_all is None else of_all.mean))
    return JudgedClaim(name, claim, tuple(parts))


def _measure(part: ClaimPart, results: Results, level: float) -> ClaimValue | None:
    metrics = [part.metric, *([part.less] if part.less else [])]
    if not all(results.measures(encoder, metric) for encoder in part.encoders for metric in metrics):
        return None
    return results.improvement(part.encoder, part.other, part.metric, part.less, level)
