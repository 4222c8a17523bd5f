"""Verdicts follow the intervals, and every seed has a say."""

from __future__ import annotations

import pytest

from components.benchmarks.bootstrap import Interval
from components.study.results import Found, Results
from components.study.rules import Claim, Part
from components.study.verdicts import JudgedClaim, JudgedPart, judge
from tests.unit.study.conftest import AO


def _part(by: float = 0.1, **compared: object) -> Part:
    return Part.model_validate({"metric": AO, "encoder": "better", "by": by} | (compared or {"better_than": "base"}))


def _found(low: float, high: float, *each: float) -> Found:
    return Found(Interval((low + high) / 2, low, high), each or ((low + high) / 2,))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (_found(0.11, 0.3), "holds"),
        (_found(0.11, 0.3, 0.25, 0.1), "undecided"),
        (_found(0.1, 0.3), "undecided"),
        (_found(-0.3, 0.09), "does not hold"),
        (_found(-0.3, 0.09, -0.2, 0.11), "undecided"),
        (_found(-0.3, 0.1), "undecided"),
        (None, "not measured"),
    ],
)
def test_a_gain_must_exceed_its_bound_as_a_whole(found: Found | None, verdict: str) -> None:
    assert JudgedPart(_part(), found).verdict == verdict


@pytest.mark.parametrize(("low", "verdict"), [(-0.09, "holds"), (-0.1, "undecided")])
def test_what_is_kept_may_lose_less_than_its_bound(low: float, verdict: str) -> None:
    part = _part(not_worse_than="base")
    assert JudgedPart(part, _found(low, 0.3)).verdict == verdict
    assert JudgedPart(part, _found(-0.4, -0.11)).verdict == "does not hold"


def test_a_claim_is_as_good_as_its_worst_part() -> None:
    holds, fails = JudgedPart(_part(), _found(0.2, 0.3)), JudgedPart(_part(), _found(-0.2, 0.0))
    open_, missing = JudgedPart(_part(), _found(0.0, 0.3)), JudgedPart(_part(), None)
    claim = Claim(paper="p", says="s", parts=(_part(),))

    def verdict(*parts: JudgedPart) -> str:
        return JudgedClaim("c", claim, parts).verdict

    assert verdict(holds, holds) == "holds"
    assert verdict(holds, open_) == "undecided"
    assert verdict(open_, missing) == "not measured"
    assert verdict(holds, missing, fails) == "does not hold"


def test_parts_are_measured(results: Results) -> None:
    parts = (_part(by=0.05), _part(by=0.25), _part(better_than="paraclip"))
    judged = judge("c", Claim(paper="p", says="s", parts=parts), results)
    assert [part.verdict for part in judged.parts] == ["holds", "undecided", "not measured"]
