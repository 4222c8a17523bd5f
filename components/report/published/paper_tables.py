"""The papers' tables: which metrics stand in which columns, and the figures that each paper prints."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from components.benchmarks.bootstrap import correlation_value
from components.benchmarks.scores import Correlation
from components.core.discovery import choose

_FOLDER = files("components.report.published") / "collections"


class Column(BaseModel):
    """One column: a metric, the mean of several as SimCSE takes it, each rounded first, or a correlation over sets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    metric: str | None = None
    mean_of: tuple[str, ...] = ()
    correlation: tuple[tuple[str, str, str], ...] = ()
    """Three metrics of each set: Pearson's correlation of the first with the second less the third."""
    decimals: int | None = None
    """Of values times `scale`, to which each of `mean_of` is rounded before the mean is taken."""
    scale: float = 100.0
    """What the paper multiplies a share with; 1 for scores and distances."""

    @model_validator(mode="after")
    def _one_source(self) -> Column:
        if sum(map(bool, (self.metric, self.mean_of, self.correlation))) != 1:
            raise ValueError(f"column '{self.name}' needs one of `metric`, `mean_of` and `correlation`")
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics behind it."""
        if self.correlation:
            return tuple(metric for row in self.correlation for metric in row)
        return (self.metric,) if self.metric is not None else self.mean_of

    def value(self, found: dict[str, float]) -> float | None:
        """The column's value of one encoder, times `scale`; None where a metric is missing."""
        if any(metric not in found for metric in self.metrics):
            return None
        if self.correlation:
            rows = np.array([(found[one], found[two] - found[three]) for one, two, three in self.correlation])
            return self.scale * correlation_value(Correlation("pearson", *rows.T))
        values = [self.scale * found[metric] for metric in self.metrics]
        if self.decimals is not None:
            values = [round(value, self.decimals) for value in values]
        return sum(values) / len(values)


class PaperTable(BaseModel):
    """One table: its columns, and the printed figures by encoder."""

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


class Collection(BaseModel):
    """All tables of one paper that can be computed here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: str
    tables: tuple[PaperTable, ...]

    @property
    def benchmarks(self) -> list[str]:
        """The benchmarks that its columns need, in their order."""
        metrics = (metric for table in self.tables for column in table.columns for metric in column.metrics)
        return list(dict.fromkeys(metric.split("/", 1)[0] for metric in metrics))


def collection_names() -> list[str]:
    """The collections there are, sorted."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _FOLDER.iterdir() if entry.name.endswith(".yaml"))


def find_collection(name: str) -> Collection:
    """The collection of that name.

    Raises:
        InputError: there is none; the message lists those there are.
    """
    known = choose(collection_names(), name, "collection")
    return Collection.model_validate(yaml.safe_load((_FOLDER / f"{known}.yaml").read_text("utf-8")))
