"""Prints what the stages of a plan would take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from components.cli.tables import print_table, shown_size, shown_time, table_of

if TYPE_CHECKING:
    from components.costing.cost import Cost

_COLUMNS = ("stage", "work", "tokens in", "tokens out", "time", "memory", "disk")


def print_costs(costs: Sequence[Cost]) -> None:
    """A table of the stages with what they take together, and why some numbers are guesses."""
    if not costs:
        typer.echo("no stage would run")
        return
    priced = any(cost.price is not None for cost in costs)
    table = table_of((*_COLUMNS, "price") if priced else _COLUMNS, numbers=("time", "memory", "disk", "price"))
    for cost in costs:
        time = "?" if cost.seconds is None else shown_time(cost.seconds)
        row = [cost.stage, cost.work, *_tokens(cost.questions, cost.tokens_in, cost.tokens_out)]
        row += [time, shown_size(cost.memory), shown_size(cost.disk)]
        table.add_row(*row, *([f"{cost.price:.2f}" if cost.price is not None else ""] if priced else []))
    table.add_section()
    table.add_row(*_together(costs, priced))
    print_table(table)
    for cost in costs:
        for note in cost.notes:
            typer.echo(f"{cost.stage}: {note}", err=True)


def _together(costs: Sequence[Cost], priced: bool) -> list[str]:
    """Time is of one stage after the other, memory of the largest."""
    unknown = any(cost.seconds is None for cost in costs)
    time = shown_time(sum(cost.seconds or 0.0 for cost in costs))
    sums = (sum(getattr(cost, name) for cost in costs) for name in ("questions", "tokens_in", "tokens_out"))
    row = [f"{len(costs)} stages", "", *_tokens(*sums), f"more than {time}" if unknown else time]
    row += [shown_size(max(cost.memory for cost in costs)), shown_size(sum(cost.disk for cost in costs))]
    return row + ([f"{sum(cost.price or 0.0 for cost in costs):.2f}"] if priced else [])


def _tokens(questions: int, tokens_in: int, tokens_out: int) -> tuple[str, str]:
    return (f"{tokens_in:,}", f"at most {tokens_out:,}") if questions else ("", "")
