"""Where the stages of this room read and write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folders:
    """Folders relative to the project; tests give others."""

    models: Path = Path("models")
    pairs: Path = Path("data/pairs")
    embeddings: Path = Path("data/embeddings")
    evaluation: Path = Path("data/evaluation")
    reports: Path = Path("reports")

    @property
    def test_pairs(self) -> Path:
        """The pairs whose images are the gallery."""
        return self.pairs / "test.parquet"

    @property
    def metrics(self) -> Path:
        """Values with intervals, one JSON per encoder."""
        return self.reports / "metrics"

    @property
    def per_query(self) -> Path:
        """Values per query, one file per encoder."""
        return self.reports / "per_query"

    @property
    def csv(self) -> Path:
        """The finished comparison."""
        return self.reports / "comparison.csv"


DEFAULT = Folders()
