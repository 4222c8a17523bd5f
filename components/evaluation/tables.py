"""Results as tables on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from components.evaluation.comparison import Comparison
from components.evaluation.results import Report
from components.evaluation.wording import LEGEND, delta_text, headline, value_text

_STYLES = {"better": "green", "worse": "red", "": ""}


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
        low, high = result.ci95
        table.add_row(name, f"{100 * result.value:.1f}", f"{100 * low:.1f} to {100 * high:.1f}")
    console = Console()
    console.print(table)
    console.print(f"{hidden} more by group in the metrics file", style="dim")


def print_comparison(comparison: Comparison, primary: str, groups: bool = False) -> None:
    """Print all encoders side by side; with `groups` also the values by group of queries."""
    table = Table()
    table.add_column("metric", overflow="fold")
    for encoder in comparison.encoders:
        table.add_column(encoder, justify="right", no_wrap=True)
        if encoder != comparison.reference:
            table.add_column(f"vs {comparison.reference}", justify="right")
    for section, names in [*comparison.sections(False).items(), *(comparison.sections(True).items() if groups else ())]:
        table.add_section()
        table.add_row("[bold]" + section.replace("/", "/\n") + "[/bold]")
        for name in names:
            table.add_row(f"  {name.removeprefix(section + '/')}", *_cells(comparison, name))
    console = Console()
    console.print(table)
    console.print(LEGEND.format(reference=comparison.reference), style="dim", markup=False)
    console.print(headline(comparison, primary), style="bold", markup=False, highlight=False)


def _cells(comparison: Comparison, name: str) -> list[str]:
    texts = []
    for encoder, cell in comparison.cells[name].items():
        texts.append(value_text(cell))
        if encoder != comparison.reference:
            style = _STYLES[cell.verdict]
            # The opening bracket of the interval would read as markup.
            text = delta_text(cell).replace("[", r"\[")
            texts.append(f"[{style}]{text}[/{style}]" if style else text)
    return texts
