"""Scores of encoders on the validation split, for searches: no test picture or text is used, and no interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.core.compute.metrics import Features
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.folders import BASE, EMBEDDINGS, EVALUATION, PAIRS, VALIDATION
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project import ProjectBenchmark, find_benchmark, table_files
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.evaluate import image_features, score


@dataclass(frozen=True)
class ValidationScores:
    """Scores encoders that have the base's image tower by some metrics of the project's benchmarks."""

    settings: Settings
    metrics: Sequence[str]
    benchmarks: Sequence[ProjectBenchmark]
    image_ids: Sequence[str]
    image_features: Features

    @staticmethod
    def of(settings: Settings, metrics: Sequence[str]) -> ValidationScores:
        """Read the tables and the image features of the split; raises InputError for a metric that nothing computes."""
        names = settings.evaluate.benchmarks
        for metric in metrics:
            if not any(metric.split("/")[0].startswith(name) for name in names):
                raise InputError(f"params.yaml: evaluate.benchmarks lacks the benchmark of {metric}: add it")
        chosen = {name for metric in metrics for name in names if metric.split("/")[0].startswith(name)}
        benchmarks = [find_benchmark(name) for name in names if name in chosen]
        table_files(benchmarks, EVALUATION / VALIDATION)
        pairs = PAIRS / "val.parquet"
        ids, features = image_features(Encoder.load(BASE), EMBEDDINGS, pairs, settings.embed.batch_size)
        return ValidationScores(settings, metrics, benchmarks, ids, features)

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """Metric -> value, higher being better."""
        under_test = EncoderUnderTest(encoder.sidecar.name, _Quiet(encoder), "")
        evaluate = self.settings.evaluate.model_copy(update={"bootstrap": 1})
        places = EVALUATION / VALIDATION, evaluate.top_k, self.image_ids, self.image_features
        _, results = score(self.benchmarks, ProjectContext(under_test, *places), evaluate)
        found = {metric: results[metric] for metric in self.metrics}
        return {metric: one.value if one.higher_is_better else -one.value for metric, one in found.items()}


@dataclass(frozen=True)
class _Quiet:
    """An encoder without a progress bar."""

    encoder: Encoder

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256, title: str | None = None) -> Features:
        return self.encoder.embed_texts(texts, batch_size)
