"""Rank encoders on the test pictures: paired differences to the best one, and groups that are not distinguishable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from components.core.compute.metrics import Features
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project import ProjectBenchmark, find_benchmark, missing_tables, table_files
from components.evaluation.scoring.benchmark import Scores, key_metrics
from components.evaluation.scoring.comparisons import AllPairs, letters_of, sign_flip_p, significant
from components.evaluation.scoring.evaluate import image_features, score_all
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.results import DEFAULT, Folders, Report, write_results

BENCHMARKS = ("paraphrased_retrieval", "retrieval", "negations", "typos", "swaps", "half_truths")
"""Benchmarks of a ranking, where their tables exist."""
_LEVEL, _DRAWS = 0.05, 2000


@dataclass(frozen=True)
class Ranked:
    """One encoder's place on a metric.

    Attributes:
        behind: less the best of the other encoders, in intervals that hold for all encoders at once (Hsu 1984).
        groups: letters; encoders that share one do not differ significantly (Holm 1979, at 5%).
    """

    encoder: str
    value: float
    behind: Interval
    groups: str


@dataclass(frozen=True)
class Ranking:
    """All encoders on one metric, the best first.

    Attributes:
        least: the least difference of any two that the queries show beside all others, with a power of 80%.
    """

    metric: str
    queries: int
    least: float
    encoders: tuple[Ranked, ...]


def chosen_benchmarks(names: Sequence[str], folder: Path = DEFAULT.evaluation) -> list[ProjectBenchmark]:
    """The benchmarks with these names; without any, those of `BENCHMARKS` whose tables are in `folder`."""
    if names:
        return [find_benchmark(name) for name in names]
    found = [one for one in map(find_benchmark, BENCHMARKS) if not missing_tables(one, folder)]
    if not found:
        raise InputError(f"{folder} has no benchmark table: run `dvc repro prepare`, or `dvc repro test_set`")
    return found


def score_encoders(
    encoders: Iterable[EncoderUnderTest],
    benchmarks: Sequence[ProjectBenchmark],
    settings: Settings,
    folders: Folders = DEFAULT,
) -> list[tuple[Report, Scores]]:
    """Score each encoder on the project's test pictures; its values per query are in `reports/rank`.

    Encoders with the same image tower embed the pictures once.
    """
    tables = table_files(benchmarks, folders.evaluation)
    galleries: dict[str, tuple[Sequence[str], Features]] = {}
    found: list[tuple[Report, Scores]] = []
    for under_test in encoders:
        tower, encoder = under_test.image_tower_sha256, under_test.encoder
        if tower is None or not isinstance(encoder, Encoder):
            raise InputError(f"'{under_test.name}' has no image tower: only encoders of texts and pictures are ranked")
        if under_test.name in (report.encoder for report, _ in found):
            raise InputError(f"two encoders are named '{under_test.name}': rank them in folders with different names")
        if tower not in galleries:
            batch = settings.embed.batch_size
            galleries[tower] = image_features(encoder, folders.embeddings, folders.test_pairs, batch)
        report, scores = score_all(under_test, galleries[tower], benchmarks, tables, settings.evaluate, folders)
        write_results(report, scores, folders.reports / "rank")
        found.append((report, scores))
    return found


def rank(scored: Sequence[tuple[Report, Scores]], benchmarks: Sequence[ProjectBenchmark], seed: int) -> list[Ranking]:
    """The key metrics of the benchmarks, each with all encoders; only those with a value per query of one picture."""
    if len(scored) < 2:
        raise InputError("give at least two encoders")
    report, scores = scored[0]
    names = [name for name in key_metrics(benchmarks, list(report.metrics)) if name in scores.values]
    single = [name for name in names if name not in scores.pictures or scores.pictures[name].ndim == 1]
    return [_ranking(name, scored, seed) for name in single]


def _ranking(metric: str, scored: Sequence[tuple[Report, Scores]], seed: int) -> Ranking:
    results = {report.encoder: report.metrics[metric] for report, _ in scored}
    values = {report.encoder: scores.values[metric] for report, scores in scored}
    about = scored[0][1].groups(metric)
    sign = 1 if next(iter(results.values())).higher_is_better else -1
    order = sorted(results, key=lambda encoder: -sign * results[encoder].value)
    pairs = list(combinations(order, 2))
    # Holm's smallest level is that of all pairs; a permutation test with few draws could not reach it.
    draws = max(_DRAWS, int(5 * len(pairs) / _LEVEL))
    p = {pair: sign_flip_p(values[pair[0]], values[pair[1]], draws, seed, *about) for pair in pairs}
    letters = letters_of(order, significant(p))
    all_pairs = AllPairs.of({encoder: values[encoder] for encoder in order}, *about)
    behind = all_pairs.behind_best(sign)
    ranked = (Ranked(encoder, results[encoder].value, behind[encoder], letters[encoder]) for encoder in order)
    return Ranking(metric, len(values[order[0]]), all_pairs.least, tuple(ranked))
