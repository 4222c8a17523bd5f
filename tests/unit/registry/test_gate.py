"""Each rule refuses on its own, by the interval of the difference per query; a refusal names cause and remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.compute.metrics import Reals
from components.core.settings import Promote, Settings
from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.core.tables.records import PARAPHRASES
from components.evaluation.scoring.benchmark import Correlation, Scores
from components.evaluation.scoring.results import Report, Result
from components.registry.gate import Evidence, Judged, errors_needed, judge, level_of
from components.registry.promotion import promote
from components.registry.refusal import Numbers, cause
from tests.support.registry_project import EXAMPLES, SUMMARY, SUMMARY_FILE, Project

PRIMARY, GUARD = "b/primary", "b/guard"
POLICY = Promote(model="m", metric=PRIMARY, guards={GUARD: 0.01})
FINE = Evidence()
SIZE = 1000


def _of(primary: Reals, guard: Reals, higher: bool = True, **changes: Any) -> Judged:
    values = {PRIMARY: primary, GUARD: guard}
    metrics = {name: Result(value=float(of.mean()), higher_is_better=higher) for name, of in values.items()}
    facts = {"encoder": "e", "protocol": "p", "data_hash": "d", "encoder_sha256": "s"}
    return Judged(Report(**facts | {"metrics": metrics} | changes), Scores(values))


def _hits(share: float, size: int = SIZE) -> Reals:
    """The first queries are hits, so that of two encoders one hits all that the other does."""
    return (np.arange(size) < share * size).astype(np.float64)


def _judged(primary: float, guard: float = 0.5, **changes: Any) -> Judged:
    return _of(_hits(primary), _hits(guard), **changes)


OLD = _judged(0.4)


def _verdicts(new: Judged, old: Judged = OLD, policy: Promote = POLICY, evidence: Evidence = FINE) -> dict[str, bool]:
    rules = judge(new, old, policy, evidence, errors_needed([new], old, policy.metric, 1))
    return {rule.name: rule.passed for rule in rules}


def _broken(verdicts: dict[str, bool]) -> list[str]:
    return [name for name, passed in verdicts.items() if not passed]


@pytest.mark.parametrize(
    ("new", "evidence", "broken"),
    [
        (_judged(0.45), FINE, []),
        (_judged(0.45, 0.499), FINE, []),
        (_judged(0.35), FINE, [PRIMARY]),
        (_judged(0.40), FINE, [PRIMARY]),
        # Two queries more than the incumbent could be chance.
        (_judged(0.402), FINE, [PRIMARY]),
        (_judged(0.45, 0.47), FINE, [f"guard {GUARD}"]),
        (_judged(0.45, data_hash="other"), FINE, ["same data"]),
        (_judged(0.45, protocol="other"), FINE, ["same data"]),
        (_judged(0.45), Evidence(validation_faults=("rows are bad",)), ["validation"]),
        (_judged(0.45), Evidence(provenance_faults=("no commit", "no run")), ["provenance"]),
        (_judged(0.45), Evidence(rolled_back="3"), ["history"]),
    ],
)
def test_each_rule_refuses_by_itself(new: Judged, evidence: Evidence, broken: list[str]) -> None:
    assert _broken(_verdicts(new, evidence=evidence)) == broken


def test_lower_values_may_win_and_the_whole_interval_must_exceed_the_least_gain() -> None:
    low, high = (_judged(share, share, higher=False) for share in (0.3, 0.4))
    assert _broken(_verdicts(low, high)) == []
    assert _broken(_verdicts(high, low)) == [PRIMARY, f"guard {GUARD}"]
    # A gain of 0.05, one query in twenty, with a standard error of 0.007.
    for least, passes in ((0.0, True), (0.03, True), (0.04, False), (0.06, False)):
        assert _verdicts(_judged(0.45), policy=POLICY.model_copy(update={"min_gain": least}))[PRIMARY] is passes


SHOWN = r"not shown: 1,000 test queries show only losses from 0\.0\d+ on"


@pytest.mark.parametrize(
    ("guard", "outcome"),
    [
        (0.5, "kept"),
        (0.494, SHOWN + "; if the measured value is the truth, about 2,\\d+ show it"),
        (0.489, SHOWN + "$"),
        (0.47, "lost$"),
    ],
)
def test_a_guard_is_kept_lost_or_not_shown(guard: float, outcome: str) -> None:
    rules = judge(_judged(0.45, guard), OLD, POLICY, FINE, 1.96)
    [rule] = [rule for rule in rules if rule.name == f"guard {GUARD}"]
    assert re.search(rf", allowed loss 0.01: {outcome}", rule.reason), rule.reason
    assert rule.passed is (outcome == "kept")


def test_later_looks_at_a_test_set_need_more() -> None:
    levels = [level_of(look) for look in range(1, 1000)]
    assert levels[0] == 0.95
    assert levels == sorted(levels)
    assert math.isclose(sum((1 - level) / 2 for level in levels), 0.05, rel_tol=2e-3)
    new = _judged(0.408)
    passes = [judge(new, OLD, POLICY, FINE, errors_needed([new], OLD, PRIMARY, look))[1].passed for look in (1, 2, 9)]
    assert passes == [True, True, False]


def test_several_candidates_need_more_than_one_and_siblings_less_than_strangers() -> None:
    generator = np.random.default_rng(0)
    old = _of(generator.normal(size=SIZE), _hits(0.5))

    def candidates(common: float) -> list[Judged]:
        shared = common * generator.normal(size=SIZE)
        return [_of(old.scores.values[PRIMARY] + shared + generator.normal(size=SIZE), _hits(0.5)) for _ in range(20)]

    alone, siblings, strangers = (
        errors_needed(of, old, PRIMARY, 1) for of in (candidates(0)[:1], candidates(5), candidates(0))
    )
    assert alone == pytest.approx(1.962, abs=0.01)
    assert alone < siblings < strangers
    assert strangers > 2.8


def test_correlations_are_judged_by_resamples_of_both() -> None:
    generator = np.random.default_rng(1)
    gold = generator.normal(size=300)

    def correlated(noise: float) -> Judged:
        one = Correlation("spearman", gold, gold + noise * generator.normal(size=300))
        found = _judged(0.5)
        return replace(found, scores=Scores({GUARD: found.scores.values[GUARD]}, correlations={PRIMARY: one}))

    good, fair, same = correlated(0.5), correlated(1.5), correlated(0.5)
    assert _verdicts(good, fair)[PRIMARY]
    assert not _verdicts(good, same)[PRIMARY]
    assert errors_needed([good] * 5, fair, PRIMARY, 1) == pytest.approx(2.576, abs=0.01)


def test_metrics_without_values_per_query_are_compared_and_few_queries_show_nothing() -> None:
    def bare(primary: float, guard: float) -> Judged:
        return replace(_judged(primary, guard), scores=Scores({}))

    for new, broken in (
        (bare(0.401, 0.49), []), (bare(0.4, 0.5), [PRIMARY]), (bare(0.41, 0.48), [f"guard {GUARD}"]),
    ):  # fmt: skip
        assert _broken(_verdicts(new, bare(0.4, 0.5))) == broken

    def few(size: int) -> Iterable[Judged]:
        return (_of(_hits(share, size), _hits(0.5, size)) for share in (1.0, 0.0))

    assert not _verdicts(*few(19))[PRIMARY]
    assert _verdicts(*few(20))[PRIMARY]


def test_required_benchmarks_and_unknown_metrics() -> None:
    for benchmark, value, passes in (("b", 0.5, True), ("b", float("nan"), False), ("c", 0.5, False)):
        policy = POLICY.model_copy(update={"require_benchmarks": (benchmark,), "guards": {}})
        new = _judged(0.45)
        metrics = new.report.metrics | {GUARD: Result(value=value, higher_is_better=True)}
        scored = replace(new, report=new.report.model_copy(update={"metrics": metrics}))
        assert _verdicts(scored, policy=policy)[f"benchmark {benchmark}"] is passes
    for key, required in (("metric", "b/none"), ("guards", {"b/none": 0.1})):
        with pytest.raises(InputError, match=rf"promote\.{key} requires 'b/none'"):
            _verdicts(_judged(0.45), policy=POLICY.model_copy(update={key: required}))


FLAT = Numbers(
    value=0.5, gain=-0.01, wanted=None, lost={}, unshown={}, accepted=5000, rows=9000, reason="", similarity=0.8
)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "none of the usual causes: -0.0100 with 5,000 rows: try other values of lr and epochs by `cliptune tune`"),
        ({"lost": {"a": 0.01, "b": 0.03}}, "forgetting: b fell by 0.0300 more than its guard allows: halve `lr`"),
        ({"accepted": 300, "rows": 400, "reason": "echo"}, "accepted rows: 300 of 400, most often for echo: raise"),
        ({"accepted": 2000, "rows": 9000}, "too few accepted rows: 2,000 of 9,000: raise synthesize.max_captions"),
        ({"gain": 0.01, "wanted": 4000}, r"gain of \+0.0100 may be chance; if it is .* about 4,000 test queries"),
        ({"unshown": {"a": 3000, "b": 9000}}, "the test set is too small for the guard b: about 9,000 queries"),
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
    assert promote(settings).advice.startswith("forgetting: retrieval/t2i_recall_at_5 fell by 0.1700 more")
    # Missing evidence is not a matter of training.
    write_json(SUMMARY_FILE, SUMMARY | {"passed": False})
    project.add("paraclip", 4, 0.5)
    assert promote(settings).advice == ""
