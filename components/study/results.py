"""The results of all encoders of the study, seed by seed, and differences between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from components.benchmarks.bootstrap import Interval, difference_over_seeds, sign_flip_p
from components.benchmarks.scores import Correlation, Scores
from components.core.errors import InputError
from components.core.metrics import Indices, Reals
from components.core.settings import Evaluate
from components.evaluation.results import Folders, Report, read_report, read_scores

Column = Reals | Correlation
"""A metric's values per query, or the two columns of a correlation."""


@dataclass(frozen=True)
class Found:
    """A value, or how much better one encoder is than another, over seeds.

    Attributes:
        mean: over the seeds, with its 95% interval over seeds and queries.
        each: the value of each seed.
        p: of the paired permutation test over queries, of each query's mean over the seeds; None where there is none:
            of correlations, of queries about two pictures, and against a number.
    """

    mean: Interval
    each: tuple[float, ...]
    p: float | None = None


@dataclass(frozen=True)
class Results:
    """All encoders' results.

    Attributes:
        reports, scores: encoder -> those of each seed, the seeds of all encoders in the same order.
        evaluate: how intervals are drawn.
    """

    reports: Mapping[str, Sequence[Report]]
    scores: Mapping[str, Sequence[Scores]]
    evaluate: Evaluate

    @property
    def encoders(self) -> list[str]:
        """Their names, the base first."""
        return list(self.reports)

    @property
    def seeds(self) -> int:
        """How many seeds each was trained with."""
        return len(next(iter(self.reports.values())))

    def measures(self, encoder: str, metric: str) -> bool:
        """Whether the encoder has values of the metric that intervals can be drawn of."""
        if encoder not in self.scores:
            return False
        first = self.scores[encoder][0]
        return len(first.values.get(metric, ())) > 0 or metric in first.correlations

    def higher_is_better(self, metric: str) -> bool:
        """The metric's direction, as the benchmark declares it."""
        return next(iter(self.reports.values()))[0].metrics[metric].higher_is_better

    def value(self, encoder: str, metric: str) -> Found:
        """An encoder's mean of a metric."""
        return self.difference(encoder, 0.0, metric)

    def improvement(self, encoder: str, other: str | float, metric: str, less: str = "") -> Found:
        """How much better an encoder is than another one, or than a number: positive is better.

        Args:
            less: a metric of the same queries that is taken off `metric` on both sides first.
        """
        found = self.difference(encoder, other, metric, less)
        if self.higher_is_better(metric):
            return found
        mean = Interval(-found.mean.value, -found.mean.high, -found.mean.low)
        return replace(found, mean=mean, each=tuple(-value for value in found.each))

    def difference(self, encoder: str, other: str | float, metric: str, less: str = "") -> Found:
        """An encoder's value less another one's, or less a number; arguments as in `improvement`."""
        own = self._columns(encoder, metric, less)
        if isinstance(other, str):
            theirs = self._columns(other, metric, less)
        else:
            theirs = [_constant(column, other) for column in own]
        first = self.scores[encoder][0]
        about = first.strata.get(metric), first.pictures.get(metric)
        resampling = self.evaluate.bootstrap, self.evaluate.seed
        mean = difference_over_seeds(own, theirs, *resampling, *about)
        each = tuple(
            difference_over_seeds([one], [another], 1, 0, *about).value
            for one, another in zip(own, theirs, strict=True)
        )
        p = _p(own, theirs, resampling, *about) if isinstance(other, str) else None
        return Found(mean, each, p)

    def _columns(self, encoder: str, metric: str, less: str) -> list[Column]:
        found: list[Column] = []
        for scores in self.scores[encoder]:
            if not less:
                found.append(scores.values[metric] if metric in scores.values else scores.correlations[metric])
            else:
                found.append(scores.values[metric] - scores.values[less])
        return found


def _constant(column: Column, number: float) -> Column:
    """What has this value for every query, to be compared with; of correlations only 0 is known."""
    if not isinstance(column, Correlation):
        return np.full(len(column), number)
    if number:
        raise InputError("a correlation is compared with another encoder or with 0")
    return replace(column, predicted=np.zeros(len(column.predicted)))


def _p(
    own: Sequence[Column],
    theirs: Sequence[Column],
    resampling: tuple[int, int],
    strata: Indices | None,
    pictures: Indices | None,
) -> float | None:
    values = [[column for column in columns if not isinstance(column, Correlation)] for columns in (own, theirs)]
    if not all(values) or (pictures is not None and pictures.ndim > 1):
        return None
    first, second = (np.mean(columns, axis=0) for columns in values)
    return sign_flip_p(first, second, *resampling, strata, pictures)


def read_results(encoders: Sequence[str], seeds: Sequence[Folders], evaluate: Evaluate) -> Results:
    """The results of all encoders in the folders of all seeds.

    Raises:
        InputError: an encoder has none for a seed, or two were scored on different data or by different protocols.
    """
    reports = {name: [read_report(name, folders.metrics) for folders in seeds] for name in encoders}
    first = next(iter(reports.values()))[0]
    for name, found in reports.items():
        for report, folders in zip(found, seeds, strict=True):
            if (report.data_hash, report.protocol) != (first.data_hash, first.protocol):
                raise InputError(
                    f"{folders.metrics / name}.json is of other data or protocols than '{first.encoder}': "
                    "run `dvc repro`"
                )
    scores = {
        name: [read_scores(report, folders.per_query) for report, folders in zip(found, seeds, strict=True)]
        for name, found in reports.items()
    }
    return Results(reports, scores, evaluate)
