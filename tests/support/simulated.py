"""Values per query of simulated encoders with a known truth, and rates with their Monte Carlo error.

`pytest -s tests/unit/statistics -m "slow or not slow"` prints every measured rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from components.core.compute.metrics import Indices, Reals
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.results import Report, Result
from components.registry.gate import Judged

EFFORTS = [pytest.param(1, id="quick"), pytest.param(6, id="full", marks=pytest.mark.slow)]
"""Factors of the draws of a simulation."""
MEAN = 0.32926
"""True mean of the values of `encoders`."""
_ERRORS = 3


@dataclass(frozen=True)
class Rate:
    """How often something happened in so many draws."""

    share: float
    draws: int

    def at_most(self, bound: float) -> bool:
        """Whether the true rate can be at most `bound`: the measured one is less than three standard errors above."""
        return self.share <= bound + self._slack(bound)

    def within(self, low: float, high: float) -> bool:
        """Whether the true rate can lie between both."""
        return self.share >= low - self._slack(low) and self.at_most(high)

    def _slack(self, bound: float) -> float:
        return _ERRORS * math.sqrt(bound * (1 - bound) / self.draws)


def rate(what: str, events: Iterable[bool]) -> Rate:
    """Count the events and print their share."""
    found = [*events]
    share = sum(found) / len(found)
    error = math.sqrt(share * (1 - share) / len(found))
    print(f"{100 * share:6.2f} % ±{196 * error:.2f}  {what} ({len(found):,} draws)")
    return Rate(share, len(found))


def draws(count: int, *seed: float) -> Iterator[np.random.Generator]:
    """A generator for each draw; all of one seed, which names the case."""
    generator = np.random.default_rng([20261130, *(int(1000 * part) for part in seed)])
    return (generator for _ in range(count))


def encoders(generator: np.random.Generator, count: int, size: int, likeness: float, share: float = 0.0) -> Reals:
    """Values of equal encoders `[count, size]` whose normal scores correlate by `likeness`.

    They are skewed and between 0 and 1, as AO@10 is; with `share` they are hits of so many queries.
    """
    from scipy.special import expit, ndtri

    common, own = generator.normal(size=size), generator.normal(size=(count, size))
    score = math.sqrt(likeness) * common + math.sqrt(1 - likeness) * own
    return (score < ndtri(share)).astype(np.float64) if share else np.asarray(expit(1.5 * score - 1), dtype=np.float64)


def hits(generator: np.random.Generator, size: int, share: float, differ: float, gain: float) -> Reals:
    """Hits of two encoders `[2, size]` that differ in a share of queries; the second hits more by `gain`."""
    lost, won = (differ - gain) / 2, (differ + gain) / 2
    kind = generator.choice(4, size=size, p=[share - lost, lost, won, 1 - share - won])
    return np.stack([np.isin(kind, hit) for hit in ((0, 1), (0, 2))]).astype(np.float64)


def judged(values: Mapping[str, Reals], pictures: Indices | None = None) -> Judged:
    """Results with these values per query, of the metrics named."""
    metrics = {name: Result(value=float(of.mean()), higher_is_better=True) for name, of in values.items()}
    report = Report(encoder="e", protocol="p", data_hash="d", encoder_sha256="s", metrics=metrics)
    return Judged(report, Scores(dict(values), pictures={} if pictures is None else dict.fromkeys(values, pictures)))
