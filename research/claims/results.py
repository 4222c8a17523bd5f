"""Results of all encoders of the study, seed by seed: differences, a table, ranks over all needs, and regressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from components.core.settings import Evaluate
from components.core.system.errors import InputError
from components.evaluation.report.comparison import Comparison
from components.evaluation.scoring.benchmark import Column, Correlation, Scores
from components.evaluation.scoring.comparisons import difference_of
from components.evaluation.scoring.intervals import LEVEL, Interval
from components.evaluation.scoring.result_table import Cell
from components.evaluation.scoring.results import Folders, Report, read_report, read_scores


@dataclass(frozen=True)
class ClaimValue:
    """A value, or the improvement of one encoder over another, over seeds.

    Attributes:
        mean: over the seeds, with its 95% interval over seeds and queries.
    """

    mean: Interval
    each: tuple[float, ...]


@dataclass(frozen=True)
class Results:
    """All encoders' results.

    Attributes:
        reports, scores: encoder -> those of each seed, with the same order of seeds for all encoders.
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
        """Number of seeds of each encoder."""
        return len(next(iter(self.reports.values())))

    def measures(self, encoder: str, metric: str) -> bool:
        """Whether the encoder has values of the metric that can be resampled."""
        if encoder not in self.scores:
            return False
        first = self.scores[encoder][0]
        return len(first.values.get(metric, ())) > 0 or metric in first.correlations

    def higher_is_better(self, metric: str) -> bool:
        """The metric's direction, as the benchmark declares it."""
        return next(iter(self.reports.values()))[0].metrics[metric].higher_is_better

    def value(self, encoder: str, metric: str) -> ClaimValue:
        """An encoder's mean of a metric."""
        return self.difference(encoder, 0.0, metric)

    def improvement(
        self, encoder: str, other: str | float, metric: str, less: str = "", level: float = LEVEL
    ) -> ClaimValue:
        """The improvement of an encoder over another or a number, positive if better, less `less` of both sides."""
        found = self.difference(encoder, other, metric, less, level)
        if self.higher_is_better(metric):
            return found
        mean = Interval(-found.mean.value, -found.mean.high, -found.mean.low)
        return replace(found, mean=mean, each=tuple(-value for value in found.each))

    def difference(
        self, encoder: str, other: str | float, metric: str, less: str = "", level: float = LEVEL
    ) -> ClaimValue:
        """An encoder's value less another one's, or less a number; arguments as in `improvement`."""
        columns = self._columns(encoder, metric, less)
        if isinstance(other, str):
            theirs = self._columns(other, metric, less)
        else:
            theirs = [_constant(column, other) for column in columns]
        first = self.scores[encoder][0]
        about = first.groups(metric)
        resampling = self.evaluate.bootstrap, self.evaluate.seed
        mean = difference_of(columns, theirs, *resampling, *about, level)
        each = tuple(
            difference_of([one], [another], 1, 0, *about).value for one, another in zip(columns, theirs, strict=True)
        )
        return ClaimValue(mean, each)

    def _columns(self, encoder: str, metric: str, less: str) -> list[Column]:
        columns: list[Column] = []
        for scores in self.scores[encoder]:
            if not less:
                columns.append(scores.values[metric] if metric in scores.values else scores.correlations[metric])
            else:
                columns.append(scores.values[metric] - scores.values[less])
        return columns


def _constant(column: Column, number: float) -> Column:
    """The number for every query; correlations can only be compared with 0."""
    if not isinstance(column, Correlation):
        return np.full(len(column), number)
    if number:
        raise InputError("a correlation is compared with another encoder or with 0")
    return replace(column, predicted=np.zeros(len(column.predicted)))


def read_results(encoders: Sequence[str], seeds: Sequence[Folders], evaluate: Evaluate) -> Results:
    """The results of all encoders in the folders of all seeds."""
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


def comparison_over_seeds(results: Results, metrics: Sequence[str]) -> Comparison:
    """Means over the seeds and differences to the first encoder, of the metrics that every encoder has."""
    reference = results.encoders[0]
    cells: dict[str, dict[str, Cell]] = {}
    for metric in metrics:
        if not _measured(results, metric):
            continue
        higher = results.higher_is_better(metric)
        cells[metric] = {
            encoder: Cell(
                results.value(encoder, metric).mean,
                results.difference(encoder, reference, metric).mean if encoder != reference else None,
                higher,
            )
            for encoder in results.encoders
        }
    return Comparison(tuple(results.encoders), cells)


@dataclass(frozen=True)
class NeedScore:
    """One encoder's score on one need of users.

    Attributes:
        value: mean over the seeds.
        shortfall: the gap to the encoder with the best mean on this need; 0 for that one. The intervals of all
            encoders hold at once: the best one is left out in 5% of studies (Hsu 1984, by Bonferroni's level).
    """

    value: Interval
    shortfall: Interval

    @property
    def could_be_best(self) -> bool:
        """Whether the interval of its shortfall includes 0."""
        return self.shortfall.low <= 0


@dataclass(frozen=True)
class AllNeeds:
    """One encoder's scores on all needs."""

    encoder: str
    needs: Mapping[str, NeedScore]

    @property
    def worst(self) -> float:
        """The largest shortfall, by which encoders are ranked; smaller is better."""
        return max(need.shortfall.value for need in self.needs.values())

    @property
    def possibly_best(self) -> int:
        """Number of needs on which it could be the best."""
        return sum(need.could_be_best for need in self.needs.values())


def rank_for_all_needs(results: Results, families: Mapping[str, str]) -> list[AllNeeds]:
    """All encoders, the smallest largest shortfall first; families whose metric has no values are skipped."""
    measured = {need: metric for need, metric in families.items() if _measured(results, metric)}
    best = {need: _best(results, metric) for need, metric in measured.items()}
    # One-sided: only an encoder below the best one can be left out.
    level = 1 - 2 * (1 - LEVEL) / max(1, len(results.encoders) - 1)
    ranked = [
        AllNeeds(
            encoder,
            {
                need: NeedScore(
                    results.value(encoder, metric).mean,
                    results.improvement(best[need], encoder, metric, level=level).mean,
                )
                for need, metric in measured.items()
            },
        )
        for encoder in results.encoders
    ]
    return sorted(ranked, key=lambda one: one.worst) if measured else []


def _measured(results: Results, metric: str) -> bool:
    return all(results.measures(encoder, metric) for encoder in results.encoders)


def _best(results: Results, metric: str) -> str:
    return max(results.encoders, key=lambda encoder: results.improvement(encoder, 0.0, metric).mean.value)


def regressions(comparison: Comparison) -> dict[str, list[tuple[str, Interval]]]:
    """Encoder -> metrics on which it is significantly worse than the first encoder, largest loss first."""
    losses_of: dict[str, list[tuple[str, Interval]]] = {}
    for encoder in comparison.encoders[1:]:
        losses = [
            (metric, row[encoder].delta) for metric, row in comparison.cells.items() if row[encoder].verdict == "worse"
        ]
        measured = [(metric, delta) for metric, delta in losses if delta is not None]
        losses_of[encoder] = sorted(measured, key=lambda loss: -abs(loss[1].value))
    return losses_of
