"""Each rule refuses on its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.settings import Margin, Promote
from components.core.system.errors import InputError
from components.evaluation.scoring.results import Report, Result
from components.registry.gate import Evidence, judge

PRIMARY, GUARD = "b/primary", "b/guard"
POLICY = Promote(model="m", metric=PRIMARY, guards={GUARD: 0.01})


def _report(primary: float, guard: float, half: float = 0.02, higher: bool = True, **changes: Any) -> Report:
    metrics = {
        PRIMARY: Result(value=primary, ci95=(primary - half, primary + half), higher_is_better=higher),
        GUARD: Result(value=guard, ci95=(guard, guard), higher_is_better=higher),
    }
    facts = {"encoder": "e", "protocol": "p", "data_hash": "d", "encoder_sha256": "s"}
    return Report(**facts | {"metrics": metrics} | changes)


OLD = _report(0.40, 0.50)


def test_each_rule_refuses_by_itself() -> None:
    good, fine = _report(0.45, 0.50), Evidence()
    cases: list[tuple[Report, Report, Evidence, list[str]]] = [
        (good, OLD, fine, []),
        (_report(0.45, 0.49), OLD, fine, []),
        (_report(0.41, 0.50), OLD, fine, [PRIMARY]),
        (_report(0.35, 0.50), OLD, fine, [PRIMARY]),
        (_report(0.45, 0.50, half=0.06), OLD, fine, [PRIMARY]),
        (good, _report(0.40, 0.50, half=0.06), fine, [PRIMARY]),
        (_report(float("nan"), 0.50), OLD, fine, [PRIMARY]),
        (_report(0.45, 0.48), OLD, fine, [f"guard {GUARD}"]),
        (_report(0.45, float("nan")), OLD, fine, [f"guard {GUARD}"]),
        (_report(0.45, 0.50, data_hash="other"), OLD, fine, ["same data"]),
        (_report(0.45, 0.50, protocol="other"), OLD, fine, ["same data"]),
        (good, OLD, Evidence(validation_faults=("rows are bad",)), ["validation"]),
        (good, OLD, Evidence(provenance_faults=("no commit", "no run")), ["provenance"]),
        (good, OLD, Evidence(rolled_back="3"), ["history"]),
        (_report(0.3, 0.52, higher=False), _report(0.4, 0.5, higher=False), fine, [f"guard {GUARD}"]),
    ]
    verdicts = [judge(candidate, incumbent, POLICY, evidence) for candidate, incumbent, evidence, _ in cases]
    failed = [[rule.name for rule in rules if not rule.passed] for rules in verdicts]
    assert failed == [case[-1] for case in cases]
    assert "no commit; no run" in [rule.reason for rule in verdicts[-3]]


def test_required_benchmarks_and_unknown_metrics() -> None:
    for benchmark, value, passes in (("b", 0.5, True), ("b", float("nan"), False), ("c", 0.5, False)):
        policy = POLICY.model_copy(update={"require_benchmarks": (benchmark,), "guards": {}})
        rules = {rule.name: rule.passed for rule in judge(_report(0.45, value), OLD, policy, Evidence())}
        assert rules[f"benchmark {benchmark}"] is passes
    for key, required in (("metric", "b/none"), ("guards", {"b/none": 0.1})):
        with pytest.raises(InputError, match=rf"promote\.{key} requires 'b/none'"):
            judge(_report(0.45, 0.5), OLD, POLICY.model_copy(update={key: required}), Evidence())


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.2))
def test_two_encoders_never_beat_each_other(one: float, other: float, half: float) -> None:
    left, right = _report(one, 0.5, half), _report(other, 0.5, half)
    rules = [*judge(left, right, POLICY, Evidence()), *judge(right, left, POLICY, Evidence())]
    assert not all(rule.passed for rule in rules)


def test_margin_rules() -> None:
    for margin, gain, passes in (
        (Margin(rule="half_width"), 0.021, True),
        (Margin(rule="half_width"), 0.019, False),
        (Margin(rule="half_width", min_gain=0.03), 0.025, False),
        (Margin(rule="half_width", min_gain=0.03), 0.035, True),
        (Margin(rule="disjoint"), 0.035, False),
        (Margin(rule="disjoint"), 0.045, True),
        (Margin(rule="min_gain"), 0.001, True),
        (Margin(rule="min_gain"), 0.0, False),
        (Margin(rule="min_gain", min_gain=0.005), 0.004, False),
    ):
        for sign in (1, -1):
            old, new = (_report(value, 0.5, higher=sign > 0) for value in (0.4, 0.4 + sign * gain))
            rules = judge(new, old, POLICY.model_copy(update={"margin": margin}), Evidence())
            assert rules[1].passed is passes, (margin, gain, sign)
