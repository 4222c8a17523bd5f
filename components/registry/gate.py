"""The gate: pure functions for the rules that a candidate must pass to become champion.

Candidate and incumbent answer the same queries, so every rule about a metric reads the interval of their difference per
query. A gain passes if its interval is above `promote.min_gain`; a guard keeps its metric if the interval of the change
is above minus the tolerated loss. docs/statistics.md has the measured rates of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from components.core.settings import Promote
from components.core.system.errors import InputError
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.comparisons import improvement, reach_of_all
from components.evaluation.scoring.intervals import FEWEST, Estimate, Interval, student
from components.evaluation.scoring.results import Report, Result
from components.registry.decision import RuleVerdict
from components.registry.reviews import Reviewed

_FALSE_PROMOTIONS = 0.05
"""At most so many of all series of looks at one test set promote a candidate that gained nothing."""


@dataclass(frozen=True)
class Judged:
    """An encoder's results and the values per query behind them."""

    report: Report
    scores: Scores


@dataclass(frozen=True)
class Evidence:
    """Evidence besides metrics. The lists of faults are empty if everything is in order."""

    validation_faults: tuple[str, ...] = ()
    provenance_faults: tuple[str, ...] = ()
    rolled_back: str = ""
    """The version with these weights that was rolled back, or empty."""
    reviewed: Reviewed | None = None
    """People's verdicts on the written test queries; None without such queries."""


def level_of(look: int) -> float:
    """The level of the primary metric's interval at the `look`-th set of candidates that one test set judges.

    Its lower end is wrong in 0.05 / (look * (look + 1)) of cases, which add up to 5% over all looks (alpha spending).

    >>> [round(level_of(look), 4) for look in (1, 2, 3)]
    [0.95, 0.9833, 0.9917]
    """
    return 1 - 2 * _FALSE_PROMOTIONS / (look * (look + 1))


def errors_needed(candidates: Sequence[Judged], incumbent: Judged, name: str, look: int) -> float:
    """How many standard errors a gain on metric `name` must exceed, so that the level holds for all candidates at once.

    Candidates and incumbent are of the same test data.
    """
    found = [gain for one in candidates if (gain := gain_of(one, incumbent, name)) is not None]
    if found and name in incumbent.scores.values:
        return reach_of_all(found, level_of(look))
    return student(1 - (1 - level_of(look)) / max(1, len(found)))


def judge(
    candidate: Judged, incumbent: Judged, policy: Promote, evidence: Evidence, errors: float
) -> tuple[RuleVerdict, ...]:
    """The verdict of each rule; the candidate passes if it passes all.

    Args:
        incumbent: results of the champion, or of the base encoder if there is no champion.
        errors: of `errors_needed`.
    """
    same = _same_data(candidate.report, incumbent.report)
    guards = policy.active_guards.items()
    tables = policy.require_valid_tables
    valid = "the training captions passed validation" if tables else "promote.require_valid_tables names no table"
    version = evidence.rolled_back
    rolled_back = (f"version {version} has these weights and was rolled back",) if version else ()
    return (
        same,
        *(_scored(candidate.report, benchmark) for benchmark in policy.require_benchmarks),
        *([_primary(candidate, incumbent, policy, errors)] if same.passed else []),
        *(_guard(candidate, incumbent, name, loss) for name, loss in guards if same.passed),
        _faultless("validation", evidence.validation_faults, valid),
        _faultless("provenance", evidence.provenance_faults, "commit, data hashes and training run are known"),
        _faultless("history", rolled_back, "these weights were never rolled back"),
        *([] if policy.min_reviewed is None else [_reviewed(evidence.reviewed, policy.min_reviewed)]),
    )


def gain_of(candidate: Judged, incumbent: Judged, name: str) -> Estimate | None:
    """How much better the candidate is on a metric, positive for both directions; None without values per query."""
    result = candidate.report.metrics.get(name)
    if result is None:
        return None
    return improvement(name, candidate.scores, incumbent.scores, result.higher_is_better)


def gain(candidate: Result, incumbent: Result) -> float:
    """How much better the candidate is; positive is better for both directions of metrics."""
    difference = candidate.value - incumbent.value
    return difference if candidate.higher_is_better else -difference


def metric(report: Report, name: str, key: str) -> Result:
    """The result `name`, which the setting `key` requires; raises InputError if the encoder was not scored on it."""
    if name not in report.metrics:
        raise InputError(
            f"params.yaml: {key} requires '{name}', which the results of '{report.encoder}' lack: "
            "choose a metric from `cliptune report`"
        )
    return report.metrics[name]


def _primary(candidate: Judged, incumbent: Judged, policy: Promote, errors: float) -> RuleVerdict:
    name, least = policy.metric, policy.min_gain
    new, old = (metric(one.report, name, "promote.metric") for one in (candidate, incumbent))
    found = gain_of(candidate, incumbent, name)
    won = gain(new, old)
    values = f"{old.value:.4f} -> {new.value:.4f}: gain {won:+.4f}"
    if found is None:
        relation = "more" if won > least else "not more"
        return RuleVerdict(name=name, passed=won > least, reason=f"{values} is {relation} than {least:g}")
    span = found.reaching(errors)
    passed = found.units >= FEWEST and span.low > least
    relation = "above" if passed else "not all above"
    reason = f"{values} {_ends(span)} is {relation} {least:g}"
    return RuleVerdict(
        name=name, passed=passed, reason=reason + ("" if passed else _wanted(found, least, "gains", errors))
    )


def _ends(span: Interval) -> str:
    return f"[{span.low:+.4f}, {span.high:+.4f}]" if span.is_known else "[too few queries]"


def _guard(candidate: Judged, incumbent: Judged, name: str, margin: float) -> RuleVerdict:
    new, old = (metric(one.report, name, "promote.guards") for one in (candidate, incumbent))
    found = gain_of(candidate, incumbent, name)
    change = gain(new, old)
    values = f"{old.value:.4f} -> {new.value:.4f}: change {change:+.4f}"
    if found is None:
        # The slack covers rounding in the difference; NaN compares false and so fails.
        held, said = change >= -margin - 1e-9, f"{values}, allowed loss {margin:g}"
        return RuleVerdict(name=f"guard {name}", passed=held, reason=said)
    span = found.interval()
    kept, lost = span.low > -margin, span.high < -margin
    outcome = "kept" if kept else "lost" if lost else "not shown"
    reason = f"{values} {_ends(span)}, allowed loss {margin:g}: {outcome}"
    wanted = "" if kept or lost else _wanted(found, -margin, "losses")
    return RuleVerdict(name=f"guard {name}", passed=kept, reason=reason + wanted)


def _wanted(found: Estimate, bound: float, shown: str, errors: float | None = None) -> str:
    """From which size on the test queries show `gains` or `losses`, and how many show the measured value."""
    if found.units < FEWEST:
        return f": {found.units} test pictures or queries have no interval, at least {FEWEST} are needed"
    line = f": {found.units:,} test queries show only {shown} from {found.least(errors):.4f} on"
    if found.value <= bound:
        return line
    return f"{line}; if the measured value is the truth, about {found.units_for(found.value - bound, errors):,} show it"


def _same_data(candidate: Report, incumbent: Report) -> RuleVerdict:
    same = (candidate.data_hash, candidate.protocol) == (incumbent.data_hash, incumbent.protocol)
    reason = (
        f"both were scored on evaluation data {candidate.data_hash[:12]}"
        if same
        else f"'{candidate.encoder}' and '{incumbent.encoder}' were scored on different data or protocols: "
        "run `dvc repro`"
    )
    return RuleVerdict(name="same data", passed=same, reason=reason)


def _scored(candidate: Report, benchmark: str) -> RuleVerdict:
    values = [result.value for name, result in candidate.metrics.items() if name.startswith(f"{benchmark}/")]
    invalid = sum(not math.isfinite(value) for value in values)
    reason = f"{len(values)} metrics"
    if not values:
        reason = f"'{candidate.encoder}' has no results of it: add it to evaluate.benchmarks and run `dvc repro`"
    elif invalid:
        reason = f"{invalid} of {len(values)} metrics are not finite: look at reports/metrics/{candidate.encoder}.json"
    return RuleVerdict(name=f"benchmark {benchmark}", passed=bool(values) and not invalid, reason=reason)


def _faultless(name: str, faults: tuple[str, ...], fine: str) -> RuleVerdict:
    return RuleVerdict(name=name, passed=not faults, reason="; ".join(faults) or fine)


def _reviewed(reviewed: Reviewed | None, least: float) -> RuleVerdict:
    if reviewed is None:
        return RuleVerdict(name="reviewed", passed=True, reason="the test queries were not written by a model")
    reason = f"{reviewed}; the lower end must be {least:.0%} or more: read more in `cliptune review`"
    return RuleVerdict(name="reviewed", passed=reviewed.low >= least, reason=reason)
