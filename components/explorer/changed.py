"""The queries of an evaluation whose results changed most from one encoder to another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel

from components.benchmarks.bootstrap import Interval, paired_difference
from components.benchmarks.embedded.paraphrased_retrieval import FILE, NAME
from components.benchmarks.scores import Scores
from components.core.errors import InputError
from components.core.records import PARAPHRASE_QUERIES
from components.core.settings import Evaluate
from components.evaluation.results import Folders, Report, read_report, read_scores

METRICS = {"ao": f"{NAME}/ao_at_", "js": f"{NAME}/js_at_", "recall": f"{NAME}/paraphrase_recall_at_"}


class Query(BaseModel):
    """A query with its value before and after."""

    query: str
    paraphrase: str
    tier: str
    before: float
    after: float


class Gain(BaseModel):
    """A mean difference with its 95% interval, over all queries or those of a tier."""

    tier: str
    queries: int
    value: float
    low: float
    high: float


class Changed(BaseModel):
    """The queries that gained and lost most among the project's test pictures, and the means.

    Attributes:
        metric: its full name.
        gains: over all queries first, then by tier.
        opens: parameters of the comparison that shows a query with the same values, in the project's own index.
    """

    metric: str
    first: str
    second: str
    gains: list[Gain]
    best: list[Query]
    worst: list[Query]
    opens: dict[str, str]


def scored(folders: Folders, sha256s: Sequence[str]) -> list[Report | None]:
    """For each encoder, by its hash, the report of its evaluation in this project, or None."""
    reports = [read_report(path.stem, folders.metrics) for path in sorted(folders.metrics.glob("*.json"))]
    by_hash = {report.encoder_sha256: report for report in reports}
    return [by_hash.get(sha256) for sha256 in sha256s]


def changed(folders: Folders, reports: Sequence[Report], metric: str, count: int, settings: Evaluate) -> Changed:
    """The `count` best and worst changes from the first report's encoder to the second's.

    Args:
        metric: a key of `METRICS`, at depth 10 or the nearest that was measured.

    Raises:
        InputError: the metric is unknown or was not measured, or both were scored on other data.
    """
    first, second = reports
    if (first.data_hash, first.protocol) != (second.data_hash, second.protocol):
        raise InputError(f"'{first.encoder}' and '{second.encoder}' were evaluated on other data: run `dvc repro`")
    scores = [read_scores(report, folders.per_query) for report in reports]
    name = _measured(metric, scores[0])
    before, after = (found.values[name] for found in scores)
    rows = PARAPHRASE_QUERIES.read(folders.evaluation / FILE).to_pylist()
    if len(rows) != len(before):
        raise InputError(f"{folders.evaluation / FILE} has other queries than were evaluated: run `dvc repro`")
    order = np.argsort(before - after, kind="stable")
    listed = [
        Query(query=row["query"], paraphrase=row["paraphrase"], tier=row["tier"] or "", before=b, after=a)
        for row, b, a in zip(rows, before.tolist(), after.tolist(), strict=True)
    ]
    gained = _once([one for one in (listed[row] for row in order) if one.after > one.before], count)
    lost = _once([one for one in (listed[row] for row in order[::-1]) if one.after < one.before], count)
    return Changed(
        metric=name,
        first=first.encoder,
        second=second.encoder,
        gains=_gains(scores, name, [one.tier for one in listed], settings),
        best=gained,
        worst=lost,
        opens={"k": name.rpartition("_")[2], "is.split": "test"},
    )


def _once(queries: Sequence[Query], count: int) -> list[Query]:
    """The first `count`; where both wordings of a picture are queries, a pair comes twice and is told once."""
    pairs = {frozenset((one.query, one.paraphrase)): one for one in reversed(queries)}
    return list(reversed(pairs.values()))[:count]


def _measured(metric: str, scores: Scores) -> str:
    if metric not in METRICS:
        raise InputError(f"metric '{metric}' is unknown: choose one of {', '.join(METRICS)}")
    start = METRICS[metric]
    depths = [int(name.removeprefix(start)) for name in scores.values if name.removeprefix(start).isdigit()]
    if not depths:
        raise InputError(f"{start}k was not measured: put '{NAME}' into evaluate.benchmarks and run `dvc repro`")
    return f"{start}{min(depths, key=lambda depth: (abs(depth - 10), depth))}"


def _gains(scores: Sequence[Scores], name: str, tiers: Sequence[str], settings: Evaluate) -> list[Gain]:
    before, after = (found.values[name] for found in scores)
    pictures = scores[0].pictures.get(name)
    groups = {"all": np.ones(len(before), np.bool_)}
    named = [tier for tier in dict.fromkeys(tiers) if tier not in ("", "all")]
    groups |= {tier: np.array([one == tier for one in tiers]) for tier in named}
    found = []
    for tier, own in groups.items():
        about = None if pictures is None else pictures[own]
        difference: Interval = paired_difference(
            after[own], before[own], settings.bootstrap, settings.seed, None, about
        )
        found.append(
            Gain(tier=tier, queries=int(own.sum()), value=difference.value, low=difference.low, high=difference.high)
        )
    return found
