"""Why a candidate won nothing: the cause that its numbers show, and the one thing to try next.

The thresholds are rules of thumb; docs/flat_or_refused.md explains each cause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from components.core.settings import Promote
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.scoring.results import Report
from components.registry.evidence import read_summary, tables_trained_on
from components.registry.gate import gain, needed_gain

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
        value: the incumbent's primary metric; `gain` is the candidate's, and `needed` the one that the margin demands.
        queries: number of test queries; None if unknown.
        lost: guard metric -> loss beyond its allowance, of guards that failed.
        accepted, rows: training rows that validation accepted, and all.
        reason: the most frequent reason of rejections.
        similarity: mean cosine of the captions and their accepted texts; None if it was not measured.
    """

    value: float
    gain: float
    needed: float
    queries: int | None
    lost: Mapping[str, float]
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
    if not 0 < numbers.gain <= numbers.needed or numbers.queries is None:
        return ""
    # The half-width of an interval falls with the square root of the number of queries.
    wanted = math.ceil(numbers.queries * (numbers.needed / numbers.gain) ** 2 / 100) * 100
    return (
        f"the test set is too small for the gain: {numbers.gain:+.4f} of {numbers.queries:,} queries, and chance makes "
        f"{numbers.needed:.4f}: about {wanted:,} queries could show it (prepare.counts.test, test_set.max_captions)"
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


def numbers_of(candidate: Report, incumbent: Report, sidecar: Sidecar, policy: Promote) -> Numbers:
    """The numbers of a candidate that was judged against an incumbent."""
    new, old = candidate.metrics[policy.metric], incumbent.metrics[policy.metric]
    lost: dict[str, float] = {}
    for name, allowed in policy.guards.items():
        if allowed is not None and name in candidate.metrics and name in incumbent.metrics:
            beyond = -gain(candidate.metrics[name], incumbent.metrics[name]) - allowed
            lost |= {name: beyond} if beyond > 0 else {}
    summaries = [read_summary(table) for table in tables_trained_on(sidecar.data_hashes)]
    reasons: dict[str, int] = {}
    for summary in summaries:
        reasons |= summary.get("rejected_by_reason", {})
    return Numbers(
        value=old.value,
        gain=gain(new, old),
        needed=max(needed_gain(new, old), policy.margin.min_gain),
        queries=new.queries,
        lost=lost,
        accepted=sum(summary.get("accepted", 0) for summary in summaries),
        rows=sum(summary.get("rows", 0) for summary in summaries),
        reason=max(reasons, key=lambda name: reasons[name], default=""),
        similarity=_mean_similarity(sidecar.data_hashes),
    )


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
