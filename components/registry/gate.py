"""The gate: the rules that a candidate must pass to become champion, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from components.core.errors import InputError
from components.core.settings import Margin, Promote
from components.evaluation.results import Report, Result
from components.registry.decision import Rule
from components.registry.votes import Wins


@dataclass(frozen=True)
class Evidence:
    """What the gate must know besides metrics. Each list names what is wrong; empty means all is well."""

    validation_faults: tuple[str, ...] = ()
    provenance_faults: tuple[str, ...] = ()
    rolled_back: str = ""
    """The version of these weights that was taken back, or empty."""
    wins: Wins | None = None
    """Blind votes for the candidate against the incumbent, where `promote.least_wins` asks for them."""


def judge(candidate: Report, incumbent: Report, policy: Promote, evidence: Evidence) -> tuple[Rule, ...]:
    """Every rule's verdict; the candidate passes when all do.

    Args:
        candidate: results of the encoder that asks to be champion.
        incumbent: results of the champion, or of the base encoder when there is none.
        policy: the block `promote` of params.yaml.
        evidence: validation, provenance and history of the candidate.

    Raises:
        InputError: the policy names a metric that one of the two does not have.
    """
    return (
        _same_data(candidate, incumbent),
        *(_scored(candidate, benchmark) for benchmark in policy.benchmarks),
        _primary(candidate, incumbent, policy.primary, policy.margin),
        *(_guard(candidate, incumbent, name, loss) for name, loss in policy.guards.items() if loss is not None),
        _faultless("validation", evidence.validation_faults, "the training captions passed validation"),
        _faultless("provenance", evidence.provenance_faults, "commit, data hashes and training run are known"),
        _not_taken_back(evidence.rolled_back),
        *([] if policy.least_wins is None else [_voted(evidence.wins, policy.least_wins)]),
    )


def gain(candidate: Result, incumbent: Result) -> float:
    """How much better the candidate is; positive is better whatever the metric's direction."""
    difference = candidate.value - incumbent.value
    return difference if candidate.higher_is_better else -difference


def needed_gain(candidate: Result, incumbent: Result) -> float:
    """The larger of both results' half-widths of the 95% interval: a smaller gain could be chance."""
    return max((high - low) / 2 for low, high in (candidate.span, incumbent.span))


def gap(candidate: Result, incumbent: Result) -> float:
    """How far apart the intervals would be if both had the same value: a smaller gain leaves them overlapping."""
    new, old = candidate, incumbent
    if candidate.higher_is_better:
        return (new.value - new.span[0]) + (old.span[1] - old.value)
    return (new.span[1] - new.value) + (old.value - old.span[0])


_MARGINS: dict[str, tuple[Callable[[Result, Result], float], str]] = {
    "half_width": (needed_gain, "the half-width"),
    "disjoint": (gap, "what parts the intervals,"),
    "least": (lambda _candidate, _incumbent: 0.0, "the least gain"),
}
"""Margin rule -> the gain that is not enough, and what it is called."""


def metric(report: Report, name: str, key: str) -> Result:
    """A result by its name; `key` is the setting that asks for it.

    Raises:
        InputError: the encoder was not scored on it.
    """
    if name not in report.metrics:
        raise InputError(
            f"params.yaml: {key} asks for '{name}', which the results of '{report.encoder}' lack: "
            "name a metric that `cliptune report` lists"
        )
    return report.metrics[name]


def _same_data(candidate: Report, incumbent: Report) -> Rule:
    same = (candidate.data_hash, candidate.protocol) == (incumbent.data_hash, incumbent.protocol)
    reason = (
        f"both were scored on evaluation data {candidate.data_hash[:12]}"
        if same
        else f"'{candidate.encoder}' and '{incumbent.encoder}' were scored on other data or by another protocol: "
        "run `dvc repro`"
    )
    return Rule(name="same data", passed=same, reason=reason)


def _scored(candidate: Report, benchmark: str) -> Rule:
    values = [result.value for name, result in candidate.metrics.items() if name.startswith(f"{benchmark}/")]
    lost = sum(not math.isfinite(value) for value in values)
    reason = f"{len(values)} metrics"
    if not values:
        reason = f"'{candidate.encoder}' has no results of it: add it to evaluate.benchmarks and run `dvc repro`"
    elif lost:
        reason = f"{lost} of {len(values)} metrics are not finite: look at reports/metrics/{candidate.encoder}.json"
    return Rule(name=f"benchmark {benchmark}", passed=bool(values) and not lost, reason=reason)


def _primary(candidate: Report, incumbent: Report, name: str, margin: Margin) -> Rule:
    new, old = (metric(report, name, "promote.primary") for report in (candidate, incumbent))
    of_rule, called = _MARGINS[margin.rule]
    won, needed = gain(new, old), of_rule(new, old)
    if needed < margin.least:
        needed, called = margin.least, "the least gain"
    relation = "more" if won > needed else "not more"
    reason = f"{old.value:.4f} -> {new.value:.4f}: gain {won:+.4f} is {relation} than {called} {needed:.4f}"
    return Rule(name=name, passed=won > needed, reason=reason)


def _guard(candidate: Report, incumbent: Report, name: str, margin: float) -> Rule:
    new, old = (metric(report, name, "promote.guards") for report in (candidate, incumbent))
    change = gain(new, old)
    # The slack forgives rounding in the difference; a NaN compares false and so fails.
    held = change >= -margin - 1e-9
    reason = f"{old.value:.4f} -> {new.value:.4f}: {change:+.4f}, allowed loss {margin:g}"
    return Rule(name=f"guard {name}", passed=held, reason=reason)


def _faultless(name: str, faults: tuple[str, ...], fine: str) -> Rule:
    return Rule(name=name, passed=not faults, reason="; ".join(faults) or fine)


def _not_taken_back(version: str) -> Rule:
    reason = (
        f"version {version} has these weights and was rolled back"
        if version
        else "these weights were never rolled back"
    )
    return Rule(name="history", passed=not version, reason=reason)


def _voted(wins: Wins | None, least: float) -> Rule:
    if wins is None or not wins.won + wins.lost:
        return Rule(name="votes", passed=False, reason="nobody has compared the two: vote in `cliptune explore`")
    reason = (
        f"won {wins.won} of {wins.won + wins.lost} blind votes, {wins.share:.0%} [{wins.low:.0%}, {wins.high:.0%}], "
        f"of which the lower end must be above {least:.0%}"
    )
    return Rule(name="votes", passed=wins.low > least, reason=reason)
