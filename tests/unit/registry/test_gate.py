"""Each rule of the gate refuses on its own; a refusal names the cause that the numbers show, and one thing to try."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.settings import Margin, Promote, Settings
from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.core.tables.records import PARAPHRASES
from components.evaluation.scoring.results import Report, Result
from components.registry.gate import Evidence, judge
from components.registry.promotion import promote
from components.registry.refusal import Numbers, cause
from tests.support.registry_project import EXAMPLES, SUMMARY, SUMMARY_FILE, Project

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


FLAT = Numbers(
    value=0.5, gain=-0.01, needed=0.02, queries=1000, lost={}, accepted=5000, rows=9000, reason="", similarity=0.8
)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "none of the usual causes: -0.0100 with 5,000 rows: try other values of lr and epochs by `cliptune tune`"),
        ({"lost": {"a": 0.01, "b": 0.03}}, "forgetting: b fell by 0.0300 more than its guard allows: halve `lr`"),
        ({"accepted": 300, "rows": 400, "reason": "echo"}, "accepted rows: 300 of 400, most often for echo: raise"),
        ({"accepted": 2000, "rows": 9000}, "too few accepted rows: 2,000 of 9,000: raise synthesize.max_captions"),
        # Four times as many queries have intervals half as wide.
        ({"gain": 0.01}, r"the test set is too small for the gain: \+0.0100 of 1,000 queries, .* about 4,000 queries"),
        ({"gain": 0.03}, "none of the usual causes"),
        ({"gain": 0.01, "queries": None}, "none of the usual causes"),
        ({"similarity": 0.97}, r"too similar to the originals \(mean cosine 0.97\): raise their `temperature`"),
        ({"similarity": None}, "none of the usual causes"),
        ({"value": 0.9}, "the base already agrees: 0.9000 leaves little to gain"),
        # One line: what was lost comes first.
        ({"lost": {"a": 0.01}, "accepted": 3, "value": 0.9}, "forgetting: a"),
    ],
)
def test_the_first_cause_that_the_numbers_show(changes: dict[str, Any], line: str) -> None:
    found = cause(replace(FLAT, **changes))
    assert re.search(line, found), found
    assert "\n" not in found


def test_a_refused_candidate_gets_advice_from_its_results_and_tables(project: Project, settings: Settings) -> None:
    ids = ["a", "b"]
    columns = {"id": ids, "sample": [0, 0], "caption": ids, "paraphrase_1": ids, "paraphrase_2": ids}
    PARAPHRASES.write(EXAMPLES, columns | {"similarity_1": [0.98, 0.98], "similarity_2": [0.96, 1.0]})
    write_json(SUMMARY_FILE, SUMMARY | {"accepted": 2000, "rows": 2500})
    project.add("paraclip", 2, 0.38)
    decision = promote(settings)
    assert decision.outcome == "refused"
    assert decision.advice.startswith("the written captions are too similar to the originals (mean cosine 0.98)")
    assert f"Try next: {decision.advice}" in Path("reports/promotion/latest.md").read_text()
    project.add("paraclip", 3, 0.5, recall=0.3)
    assert promote(settings).advice.startswith("forgetting: retrieval/t2i_recall_at_5 fell by 0.1900 more")
    # Missing evidence is not a matter of training.
    write_json(SUMMARY_FILE, SUMMARY | {"passed": False})
    project.add("paraclip", 4, 0.5)
    assert promote(settings).advice == ""
