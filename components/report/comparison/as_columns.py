"""The comparison as columns, for MLflow's view of tables."""

from __future__ import annotations

from typing import Any

from components.report.comparison.comparison import Comparison

Columns = dict[str, list[Any]]


def long_table(comparison: Comparison) -> Columns:
    """One row per metric and encoder, with intervals and differences."""
    columns: Columns = {
        name: []
        for name in ("metric", "encoder", "value", "low", "high", "delta", "delta_low", "delta_high", "verdict")
    }
    for metric, row in comparison.cells.items():
        for encoder, cell in row.items():
            delta = (cell.delta.value, cell.delta.low, cell.delta.high) if cell.delta else (None, None, None)
            entry = (metric, encoder, cell.value.value, cell.value.low, cell.value.high, *delta, cell.verdict)
            for column, value in zip(columns.values(), entry, strict=True):
                column.append(value)
    return columns


def wide_table(comparison: Comparison) -> Columns:
    """One row per encoder and one column per metric."""
    columns: Columns = {"encoder": list(comparison.encoders)}
    for metric, row in comparison.cells.items():
        columns[metric] = [row[encoder].value.value for encoder in comparison.encoders]
    return columns
