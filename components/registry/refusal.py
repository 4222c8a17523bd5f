"""Why a candidate won nothing: the cause that its numbers show, and the one thing to try next.

The thresholds are rules of thumb; docs/flat_or_refused.md explains each cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from components.core.settings import Promote
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.scoring.intervals import Estimate
from components.registry.evidence import read_summary, tables_trained_on
from components.registry.gate import Judged, gain, gain_of

FEW_ROWS, FEW_SHARE = 1000, 0.3
"""Accepted rows, and their share of all answers, below which they are too few."""
SIMILAR = 0.95
"""Mean MiniLM cosine of captions and texts from which they are too similar."""
HIGH = 0.85
"""Primary metric of the base from which little is left to gain."""


@dataclass(frozen=True)
class Numbers:
    """What decides the cause.

    Attributes:
        value: the incumbent's primary metric; `gain` is the candidate's.
        wanted: number of test queries that would show the gain, if it is the truth; None where queries are enough.
        lost: guard metric -> loss beyond its allowance, of guards that were lost.
        unshown: guard metric -> test queries that would show that it is kept, of guards that were not shown.
        accepted, rows: training rows that validation accepted, and all.
        reason: the most frequent reason of rejections.
        similarity: mean cosine of the captions and their accepted texts; None if it was not measured.
    """

    value: float
    gain: float
    wanted: int | None
    lost: Mapping[str, float]
    unshown: Mapping[str, int]
    accepted: int
    rows: int
    reason: str
    similarity: float | None


def cause(numbers: Numbers) -> str:
    """The cause and the one thing to try next, in one line; the first that the numbers show."""
    for found in (_forgot, _few_rows, _small_test_set, _similar, _agrees):
        if line := found(numbers):
            return line
    return (
        f"none of the usual causes: {numbers.gain:+.4f} with {numbers.accepted:,} rows: try other values of lr and "
        "epochs by `cliptune tune`"
    )


def _forgot(numbers: Numbers) -> str:
    if not numbers.lost:
        return ""
    name = max(numbers.lost, key=lambda guard: numbers.lost[guard])
    return (
        f"forgetting: {name} fell by {numbers.lost[name]:.4f} more than its guard allows: halve `lr`, or keep half of "
        "the base's weights by `weight_ensemble: 0.5`"
    )


def _few_rows(numbers: Numbers) -> str:
    if numbers.accepted >= FEW_ROWS and numbers.accepted >= FEW_SHARE * numbers.rows:
        return ""
    reason = f", most often for {numbers.reason}" if numbers.reason else ""
    return (
        f"too few accepted rows: {numbers.accepted:,} of {numbers.rows:,}{reason}: raise synthesize.max_captions or "
        "samples, or have a better model write them"
    )


def _small_test_set(numbers: Numbers) -> str:
    more = "(prepare.counts.test, test_set.max_captions)"
    if numbers.wanted is not None:
        return (
            f"the gain of {numbers.gain:+.4f} may be chance; if it is the truth, about {numbers.wanted:,} test queries "
            f"show it {more}"
        )
    if not numbers.unshown:
        return ""
    name = max(numbers.unshown, key=lambda guard: numbers.unshown[guard])
    return (
        f"the test set is too small for the guard {name}: about {numbers.unshown[name]:,} queries {more} show that it "
        "is kept, if it is, or a larger loss is allowed"
    )


def _similar(numbers: Numbers) -> str:
    if numbers.similarity is None or numbers.similarity < SIMILAR:
        return ""
    return (
        f"the written captions are too similar to the originals (mean cosine {numbers.similarity:.2f}): raise their "
        "`temperature` and validate.min_new_words"
    )


def _agrees(numbers: Numbers) -> str:
    if numbers.value < HIGH:
        return ""
    return (
        f"the base already agrees: {numbers.value:.4f} leaves little to gain: choose another metric or method, such as "
        "semclip for negations"
    )


def numbers_of(candidate: Judged, incumbent: Judged, sidecar: Sidecar, policy: Promote, errors: float) -> Numbers:
    """The numbers of a candidate that was judged against an incumbent; `errors` is that of `judge`."""
    new, old = candidate.report.metrics[policy.metric], incumbent.report.metrics[policy.metric]
    found = gain_of(candidate, incumbent, policy.metric)
    lost, unshown = dict[str, float](), dict[str, int]()
    for name, allowed in policy.active_guards.items():
        change = gain_of(candidate, incumbent, name)
        if change is None:
            continue
        span = change.interval()
        if span.high < -allowed:
            lost[name] = -gain(candidate.report.metrics[name], incumbent.report.metrics[name]) - allowed
        elif span.low <= -allowed < change.value:
            unshown[name] = change.units_for(change.value + allowed)
    summaries = [read_summary(table) for table in tables_trained_on(sidecar.data_hashes)]
    reasons: dict[str, int] = {}
    for summary in summaries:
        reasons |= summary.get("rejected_by_reason", {})
    return Numbers(
        value=old.value,
        gain=gain(new, old),
        wanted=_wanted(found, policy.min_gain, errors),
        lost=lost,
        unshown=unshown,
        accepted=sum(summary.get("accepted", 0) for summary in summaries),
        rows=sum(summary.get("rows", 0) for summary in summaries),
        reason=max(reasons, key=lambda name: reasons[name], default=""),
        similarity=_mean_similarity(sidecar.data_hashes),
    )


def _wanted(found: Estimate | None, least: float, errors: float) -> int | None:
    if found is None or not found.reaching(errors).low <= least < found.value:
        return None
    return found.units_for(found.value - least, errors)


def _mean_similarity(data_hashes: Mapping[str, Any]) -> float | None:
    """Mean similarity of the texts of all tables; None if a table is gone or none was measured."""
    found: list[float] = []
    for path in map(Path, data_hashes):
        if path.stem in tables_trained_on([str(path)]):
            try:
                names = [name for name in pq.read_schema(path).names if name.startswith("similarity")]
                table = pq.read_table(path, columns=names)
            except (OSError, ValueError):
                return None
            found += [value for name in names for value in table[name].to_pylist() if value is not None]
    return float(np.mean(found)) if found else None
