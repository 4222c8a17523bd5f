"""The gate: pure functions for the rules that a candidate must pass to become champion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.core.settings import Margin, Promote
from components.core.system.errors import InputError
from components.evaluation.scoring.results import Report, Result
from components.registry.decision import RuleVerdict
from components.registry.reviews import Reviewed


@dataclass(frozen=True)
class Evidence:
    """Evidence besides metrics. The lists of faults are empty if everything is in order."""

    validation_faults: tuple[str, ...] = ()
    provenance_faults: tuple[str, ...] = ()
    rolled_back: str = ""
    """The version with these weights that was rolled back, or empty."""
    reviewed: Reviewed | None = None
    """People's verdicts on the written test queries; None without such queries."""


def judge(candidate: Report, incumbent: Report, policy: Promote, evidence: Evidence) -> tuple[RuleVerdict, ...]:
    """The verdict of each rule; the candidate passes if it passes all.

    Args:
        incumbent: results of the champion, or of the base encoder if there is no champion.
    """
    return (
        _same_data(candidate, incumbent),
        *(_scored(candidate, benchmark) for benchmark in policy.require_benchmarks),
        _primary(candidate, incumbent, policy.metric, policy.margin),
        *(_guard(candidate, incumbent, name, loss) for name, loss in policy.active_guards.items()),
        _faultless("validation", evidence.validation_faults, _valid(policy.require_valid_tables)),
        _faultless("provenance", evidence.provenance_faults, "commit, data hashes and training run are known"),
        _not_rolled_back(evidence.rolled_back),
        *([] if policy.min_reviewed is None else [_reviewed(evidence.reviewed, policy.min_reviewed)]),
    )


def gain(candidate: Result, incumbent: Result) -> float:
    """How much better the candidate is; positive is better for both directions of metrics."""
    difference = candidate.value - incumbent.value
    return difference if candidate.higher_is_better else -difference


def needed_gain(candidate: Result, incumbent: Result) -> float:
    """The larger half-width of the two 95% intervals: a smaller gain could be chance."""
    return max((high - low) / 2 for low, high in (candidate.span, incumbent.span))


def gap(candidate: Result, incumbent: Result) -> float:
    """The gain at which the two intervals touch: with a smaller gain they overlap."""
    new, old = candidate, incumbent
    if candidate.higher_is_better:
        return (new.value - new.span[0]) + (old.span[1] - old.value)
    return (new.span[1] - new.value) + (old.value - old.span[0])


_MARGINS: dict[str, tuple[Callable[[Result, Result], float], str]] = {
    "half_width": (needed_gain, "the half-width"),
    "disjoint": (gap, "the gap that separates the intervals,"),
    "min_gain": (lambda _candidate, _incumbent: 0.0, "the least gain"),
}
"""Margin rule -> the gain that must be exceeded, and its name."""


def metric(report: Report, name: str, key: str) -> Result:
    """The result `name`, which the setting `key` requires; raises InputError if the encoder was not scored on it."""
    if name not in report.metrics:
        raise InputError(
            f"params.yaml: {key} requires '{name}', which the results of '{report.encoder}' lack: "
            "choose a metric from `cliptune report`"
        )
    return report.metrics[name]


def _valid(tables: Sequence[str]) -> str:
    return "the training captions passed validation" if tables else "promote.require_valid_tables names no table"


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


def _primary(candidate: Report, incumbent: Report, name: str, margin: Margin) -> RuleVerdict:
    new, old = (metric(report, name, "promote.metric") for report in (candidate, incumbent))
    required_gain, called = _MARGINS[margin.rule]
    won, needed = gain(new, old), required_gain(new, old)
    if needed < margin.min_gain:
        needed, called = margin.min_gain, "the least gain"
    relation = "more" if won > needed else "not more"
    reason = f"{old.value:.4f} -> {new.value:.4f}: gain {won:+.4f} is {relation} than {called} {needed:.4f}"
    return RuleVerdict(name=name, passed=won > needed, reason=reason)


def _guard(candidate: Report, incumbent: Report, name: str, margin: float) -> RuleVerdict:
    new, old = (metric(report, name, "promote.guards") for report in (candidate, incumbent))
    change = gain(new, old)
    # The slack covers rounding in the difference; NaN compares false and so fails.
    held = change >= -margin - 1e-9
    reason = f"{old.value:.4f} -> {new.value:.4f}: {change:+.4f}, allowed loss {margin:g}"
    return RuleVerdict(name=f"guard {name}", passed=held, reason=reason)


def _faultless(name: str, faults: tuple[str, ...], fine: str) -> RuleVerdict:
    return RuleVerdict(name=name, passed=not faults, reason="; ".join(faults) or fine)


def _not_rolled_back(version: str) -> RuleVerdict:
    fault = f"version {version} has these weights and was rolled back"
    return _faultless("history", (fault,) if version else (), "these weights were never rolled back")


def _reviewed(reviewed: Reviewed | None, least: float) -> RuleVerdict:
    if reviewed is None:
        return RuleVerdict(name="reviewed", passed=True, reason="the test queries were not written by a model")
    reason = f"{reviewed}; the lower end must be {least:.0%} or more: read more in `cliptune review`"
    return RuleVerdict(name="reviewed", passed=reviewed.low >= least, reason=reason)
