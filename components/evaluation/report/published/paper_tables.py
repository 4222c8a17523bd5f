"""The tables of papers: their columns as metrics, and the printed figures."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from components.core.system.discovery import choose
from components.evaluation.scoring.benchmark import Correlation
from components.evaluation.scoring.correlations import correlation_value

_FOLDER = files("components.evaluation.report.published") / "collections"


class Column(BaseModel):
    """A column: a metric, the mean of several rounded ones as in SimCSE, or a correlation over sets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    metric: str | None = None
    mean_of: tuple[str, ...] = ()
    correlation: tuple[tuple[str, str, str], ...] = ()
    """Three metrics of each set: Pearson's correlation of the first with the second minus the third."""
    decimals: int | None = None
    """Decimals to which each of `mean_of`, times `scale`, is rounded before the mean."""
    scale: float = 100.0
    """The paper's factor for shares; 1 for scores and distances."""

    @model_validator(mode="after")
    def _one_source(self) -> Column:
        if sum(map(bool, (self.metric, self.mean_of, self.correlation))) != 1:
            raise ValueError(f"column '{self.name}' needs one of `metric`, `mean_of` and `correlation`")
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it is computed from."""
        if self.correlation:
            return tuple(metric for row in self.correlation for metric in row)
        return (self.metric,) if self.metric is not None else self.mean_of

    def value(self, values: dict[str, float]) -> float | None:
        """The column's value of one encoder, times `scale`; None if a metric is missing."""
        if any(metric not in values for metric in self.metrics):
            return None
        if self.correlation:
            rows = np.array([(values[x], values[y] - values[z]) for x, y, z in self.correlation])
            return self.scale * correlation_value(Correlation("pearson", *rows.T))
        scaled = [self.scale * values[metric] for metric in self.metrics]
        if self.decimals is not None:
            scaled = [round(value, self.decimals) for value in scaled]
        return sum(scaled) / len(scaled)


class PaperTable(BaseModel):
    """A table: its columns, and the printed figures by encoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    rows: dict[str, tuple[float | None, ...]]

    @model_validator(mode="after")
    def _complete(self) -> PaperTable:
        for name, figures in self.rows.items():
            if len(figures) != len(self.columns):
                raise ValueError(f"row '{name}' has {len(figures)} figures for {len(self.columns)} columns")
        return self

    def digits(self, row: str | None = None) -> int:
        """Decimals that the paper prints in a row, or at most in any; two for scores and distances without rows."""
        rows = self.rows.values() if row is None else [self.rows[row]]
        printed = [len(repr(figure).partition(".")[2]) for figures in rows for figure in figures if figure is not None]
        return max(printed, default=1 if self.columns[0].scale == 100 else 2)


class Collection(BaseModel):
    """The tables of a paper."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: str
    tables: tuple[PaperTable, ...]

    @property
    def benchmarks(self) -> list[str]:
        """The benchmarks of its columns, in order."""
        metrics = (metric for table in self.tables for column in table.columns for metric in column.metrics)
        return list(dict.fromkeys(metric.split("/", 1)[0] for metric in metrics))


def collection_names() -> list[str]:
    """The names of all collections, sorted."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _FOLDER.iterdir() if entry.name.endswith(".yaml"))


def find_collection(name: str) -> Collection:
    """The collection of that name."""
    known = choose(collection_names(), name, "collection")
    return Collection.model_validate(yaml.safe_load((_FOLDER / f"{known}.yaml").read_text("utf-8")))
