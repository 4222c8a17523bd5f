"""Whether a claim holds, by a rule that knows intervals and seeds and nothing of what was hoped for.

A part holds where the whole 95% interval over seeds and queries is beyond its bound, and every seed's value is; it does
not hold where the whole interval and every seed's value fall short of the bound; else it is undecided. A claim holds
where all of its parts do, and does not where one does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from components.study.results import Found, Results
from components.study.rules import Claim, Part

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]


@dataclass(frozen=True)
class JudgedPart:
    """A part with what was found; None where an encoder or the metric is not in the study."""

    part: Part
    found: Found | None

    @property
    def verdict(self) -> Verdict:
        """Of this part alone."""
        if self.found is None:
            return "not measured"
        mean, each, bound = self.found.mean, self.found.each, self.part.bound
        if mean.low > bound and min(each) > bound:
            return "holds"
        if mean.high < bound and max(each) < bound:
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
        """Of the claim as a whole."""
        found = {part.verdict for part in self.parts}
        order: Sequence[Verdict] = ("does not hold", "not measured", "undecided")
        return next((verdict for verdict in order if verdict in found), "holds")


def judge(name: str, claim: Claim, results: Results) -> JudgedClaim:
    """Measure every part of a claim."""
    return JudgedClaim(name, claim, tuple(JudgedPart(part, _measure(part, results)) for part in claim.parts))


def _measure(part: Part, results: Results) -> Found | None:
    metrics = [part.metric, *([part.less] if part.less else [])]
    if not all(results.measures(encoder, metric) for encoder in part.encoders for metric in metrics):
        return None
    return results.improvement(part.encoder, part.other, part.metric, part.less)
