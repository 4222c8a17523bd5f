"""Scores of encoders on the validation split, for searches: one half of the pictures chooses, the other shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from components.core.compute.metrics import Features
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.folders import BASE, VALIDATION, benchmark_table
from components.core.tables.table import Table
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest, HalfScores, ShownGain
from components.evaluation.benchmarks.project import ProjectBenchmark, find_benchmark, table_files
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.comparisons import improvement
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.evaluate import image_features, score
from components.evaluation.scoring.results import DEFAULT, Result

_PICTURES = ("image_id", "first_id", "second_id")
"""Columns of tables that name pictures."""


@dataclass(frozen=True)
class ValidationScores:
    """Scores of encoders with the base's image tower on halves of the validation split, for searches.

    Each half has the queries about half of the pictures; both search all pictures. Test pictures and test texts are
    not used.

    Attributes:
        metrics: the first is that of the gain.
        start: the base's values on the half that is shown.
    """

    settings: Settings
    metrics: Sequence[str]
    benchmarks: Sequence[ProjectBenchmark]
    image_ids: Sequence[str]
    image_features: Features
    start: Scores

    @staticmethod
    def of(settings: Settings, metrics: Sequence[str]) -> ValidationScores:
        """Read the tables and the image features of the split; raises InputError for a metric that nothing computes."""
        names = settings.evaluate.benchmarks
        for metric in metrics:
            if not any(metric.split("/")[0].startswith(name) for name in names):
                raise InputError(f"params.yaml: evaluate.benchmarks lacks the benchmark of {metric}: add it")
        chosen = {name for metric in metrics for name in names if metric.split("/")[0].startswith(name)}
        benchmarks = [find_benchmark(name) for name in names if name in chosen]
        table_files(benchmarks, DEFAULT.evaluation / VALIDATION)
        pairs = DEFAULT.pairs / "val.parquet"
        base = Encoder.load(BASE)
        ids, features = image_features(base, DEFAULT.embeddings, pairs, settings.embed.batch_size)
        found = ValidationScores(settings, metrics, benchmarks, ids, features, Scores({}))
        return replace(found, start=found._half(base, 1)[0])

    def __call__(self, encoder: Encoder) -> HalfScores:
        """Metrics on both halves, and the gain over the base."""
        (_, chosen), (scores, shown) = (self._half(encoder, half) for half in (0, 1))
        name = self.metrics[0]
        found = improvement(name, scores, self.start, shown[name].higher_is_better)
        assert found is not None, "metrics of a search have values per query"
        span = found.interval()
        wanted = found.units_for(found.value) if found.value > 0 else 0
        return HalfScores(_signed(chosen), _signed(shown), ShownGain(found.value, span.low, span.high, wanted))

    def _half(self, encoder: Encoder, half: int) -> tuple[Scores, dict[str, Result]]:
        under_test = EncoderUnderTest(encoder.sidecar.name, _Quiet(encoder), "")
        evaluate = self.settings.evaluate.model_copy(update={"bootstrap": 1})
        places = DEFAULT.evaluation / VALIDATION, evaluate.top_k, self.image_ids, self.image_features
        scores, results = score(self.benchmarks, _HalfContext(under_test, *places, half=half), evaluate)
        if lacking := [metric for metric in self.metrics if metric not in results]:
            advice = "name another metric, or raise prepare.counts.val"
            raise InputError(f"half of the validation split has no {lacking[0]}: {advice}")
        return scores, {metric: results[metric] for metric in self.metrics}


def _signed(results: Mapping[str, Result]) -> dict[str, float]:
    return {metric: one.value if one.higher_is_better else -one.value for metric, one in results.items()}


@dataclass(frozen=True)
class _Quiet:
    """An encoder without a progress bar."""

    encoder: Encoder

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256, title: str | None = None) -> Features:
        return self.encoder.embed_texts(texts, batch_size)


@dataclass
class _HalfContext(ProjectContext):
    """The rows about one half of the pictures, drawn at random; all pictures are searched.

    Attributes:
        half: 0 or 1. A row about two pictures of both halves is in none; rows without pictures take turns.
    """

    half: int

    def read(self, table: Table, file: str) -> pa.Table:
        """The half's rows of a table."""
        rows = super().read(table, file)
        order = np.random.default_rng(0).permutation(len(self.image_ids))
        halves = {self.image_ids[row]: place % 2 for place, row in enumerate(order)}
        about = [rows[name].to_pylist() for name in _PICTURES if name in rows.column_names]
        owners = about or [range(rows.num_rows)]
        found = [
            all((halves.get(owner, 0) if about else owner % 2) == self.half for owner in each)
            for each in zip(*owners, strict=True)
        ]
        if not any(found):
            path = benchmark_table(self.folder, file)
            raise InputError(f"{path} has too few rows for two halves: raise prepare.counts.val")
        return rows.filter(pa.array(found))
