"""Is one encoder really better than another? Paired intervals and tests over the same queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.benchmarks.bootstrap import Interval, paired_difference, sign_flip_p
from components.core.errors import InputError
from components.evaluation.published import PublishedReport, read_published_values

_RESAMPLES = 2000


@dataclass(frozen=True)
class Pair:
    """One metric of an encoder less that of another on the same queries.

    Attributes:
        metric: its full name.
        encoder: whose value is looked at.
        against: whose value it is compared with.
        value, other: their values.
        difference: `value` less `other`, with its paired-bootstrap interval.
        p: two-sided, of the paired permutation test; None for correlations and for queries about two pictures.
        higher_is_better: the metric's direction.
    """

    metric: str
    encoder: str
    against: str
    value: float
    other: float
    difference: Interval
    p: float | None
    higher_is_better: bool

    @property
    def verdict(self) -> str:
        """`better` or `worse` where the interval excludes 0, else empty."""
        return self.difference.verdict(self.higher_is_better)


def paired(reports: Sequence[PublishedReport], against: str, folder: Path, seed: int = 0) -> list[Pair]:
    """Every encoder compared with `against` on every benchmark that both were scored on.

    Raises:
        InputError: `against` has no results, or two results are of different data or protocol versions.
    """
    reference = {report.benchmark: report for report in reports if report.encoder == against}
    if not reference:
        known = ", ".join(dict.fromkeys(report.encoder for report in reports)) or "none"
        raise InputError(f"--against '{against}' has no results: choose one of {known}")
    found: list[Pair] = []
    for report in reports:
        other = reference.get(report.benchmark)
        if other is not None and report.encoder != against:
            found += _pairs(report, other, folder, seed)
    return found


def _pairs(report: PublishedReport, other: PublishedReport, folder: Path, seed: int) -> list[Pair]:
    if (report.version, report.data_hash) != (other.version, other.data_hash):
        raise InputError(
            f"'{report.encoder}' and '{other.encoder}' were scored on different data or versions of "
            f"{report.benchmark}: run `cliptune evaluate` for both"
        )
    ours, theirs = (read_published_values(one, folder) for one in (report, other))
    found = []
    for name, value in report.metrics.items():
        if name.count("/") > 1 or name not in other.metrics:
            continue
        strata, pictures = ours.strata.get(name), ours.pictures.get(name)
        difference, p = None, None
        if name in ours.values and len(ours.values[name]) == len(theirs.values.get(name, ())):
            first, second = ours.values[name], theirs.values[name]
            difference = paired_difference(first, second, _RESAMPLES, seed, strata, pictures)
            if pictures is None or pictures.ndim == 1:
                p = sign_flip_p(first, second, _RESAMPLES, seed, strata, pictures)
        elif name in ours.correlations and name in theirs.correlations:
            both = ours.correlations[name], theirs.correlations[name]
            difference = paired_difference(*both, _RESAMPLES, seed)
        if difference is not None:
            values = value.value, other.metrics[name].value
            names = name, report.encoder, other.encoder
            found.append(Pair(*names, *values, difference, p, value.higher_is_better))
    return found
