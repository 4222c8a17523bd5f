"""One encoder's results as a table on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from components.evaluation.results import Report


def print_report(report: Report) -> None:
    """Print one encoder's values over all queries, with their intervals."""
    table = Table(title=f"{report.encoder}, values times 100")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("95% interval", justify="right")
    hidden = 0
    for name, result in report.metrics.items():
        if name.count("/") > 1:
            hidden += 1
            continue
        low, high = result.span
        table.add_row(name, f"{100 * result.value:.1f}", f"{100 * low:.1f} to {100 * high:.1f}")
    console = Console()
    console.print(table)
    console.print(f"{hidden} more by group in the metrics file", style="dim")
