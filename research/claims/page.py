"""Results of the study as one self-contained HTML page and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from components.evaluation.report.comparison import Comparison
from components.evaluation.report.formats import render, to_markdown
from components.evaluation.report.plots import Plot, bars, pareto_plot
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.result_table import ResultRow, ResultTable, signed, span_text
from research.claims.results import AllNeeds, ClaimValue, Results
from research.claims.rules import VERDICTS, Bars, JudgedClaim, JudgedPart, Verdict

_LEGEND = (
    "Means over the seeds, times 100, ± half of the 95% interval over seeds and queries; differences to {reference}, "
    "▲ better or ▼ worse if their interval excludes 0."
)
_PLURALS: Mapping[Verdict, str] = {
    "holds": "hold",
    "does not hold": "do not hold",
    "undecided": "are undecided",
    "not measured": "are not measured",
}
RULE = (
    "A comparison holds if the whole 95% interval over seeds and queries and every seed's value exceed its bound. It "
    "does not hold if all of them fall short of it, in an interval that holds for all comparisons of the claim at once "
    "(Bonferroni). Otherwise it is undecided. A claim holds if all its comparisons hold, and does not hold if one does "
    "not."
)


@dataclass(frozen=True)
class ClaimsPage:
    """The content of page and Markdown.

    Attributes:
        world: `dataset.name`.
        comparison: means over the seeds.
        bars: plots of some encoders' metrics.
        needs: encoders, ranked by their scores on all needs.
        regressions: encoder -> metrics on which it is worse than the first one.
    """

    title: str
    world: str
    seeds: tuple[int, ...]
    commit: str
    judged: Sequence[JudgedClaim]
    comparison: Comparison
    families: Mapping[str, str]
    bars: Sequence[Bars]
    needs: Sequence[AllNeeds]
    regressions: Mapping[str, Sequence[tuple[str, Interval]]]


def counts(judged: Sequence[JudgedClaim]) -> str:
    """Numbers of claims by verdict, of those written before the first verdicts and of those added later."""
    texts = []
    for name, wanted in (("written before the first verdicts", False), ("added later", True)):
        verdicts = Counter(claim.verdict for claim in judged if bool(claim.claim.added) is wanted)
        if verdicts:
            numbers = ", ".join(f"{count} {_PLURALS[verdict]}" for verdict in VERDICTS if (count := verdicts[verdict]))
            texts.append(f"Of {verdicts.total()} claims {name} {numbers}.")
    return " ".join(texts)


def page(content: ClaimsPage) -> str:
    """The self-contained HTML page."""
    return render(
        "claims.html.j2",
        Path(__file__).parent / "templates",
        content=content,
        plots=_plots(content),
        rule=RULE,
        results=_all_encoders(content.comparison),
        counts=counts(content.judged),
        question=question,
        measured=measured,
        seeds_text=seeds_text,
    )


def _all_encoders(comparison: Comparison) -> ResultTable:
    table = comparison.table_by_encoder(list(comparison.cells), "All encoders")
    return replace(table, notes=(_LEGEND.format(reference=comparison.reference),))


def _plots(content: ClaimsPage) -> list[Plot]:
    """The first family's metric against each other one's, and the bars that the file of claims has."""
    metrics = [metric for metric in content.families.values() if metric in content.comparison.cells]
    against = [
        pareto_plot(content.comparison, metrics[0], other, f"pareto-{number}")
        for number, other in enumerate(metrics[1:])
    ]
    return against + [_bars(content.comparison, plot, f"bars-{number}") for number, plot in enumerate(content.bars)]


def _bars(comparison: Comparison, plot: Bars, name: str) -> Plot:
    missing = [encoder for encoder in plot.encoders if encoder not in comparison.encoders]
    missing += [metric for metric in plot.metrics if metric not in comparison.cells]
    if missing:
        return Plot(name, plot.title, None, (f"Not measured: {', '.join(missing)}.",))
    shown = Comparison(plot.encoders, {metric: comparison.cells[metric] for metric in plot.metrics})
    return Plot(name, plot.title, bars(shown, plot.metrics, plot.metrics))


def question(judged: JudgedPart) -> str:
    """The comparison of a part, such as `paraclip better than base by more than 1.0`."""
    part = judged.part
    less = f" less {part.less}" if part.less else ""
    other = part.other if isinstance(part.other, str) else f"{100 * part.other:.1f}"
    if part.better_than is not None:
        return f"{part.metric}{less}: {part.encoder} better than {other} by more than {100 * part.by:.1f}"
    return f"{part.metric}{less}: {part.encoder} not worse than {other} by {100 * part.by:.1f}"


def measured(found: ClaimValue | None) -> str:
    """The improvement with its interval, such as `+13.4 [+12.0, +14.9]`."""
    return f"{signed(found.mean.value)} {span_text(found.mean)}" if found is not None else ""


def seeds_text(found: ClaimValue | None) -> str:
    """Each seed's improvement."""
    return ", ".join(map(signed, found.each)) if found is not None else ""


def markdown(content: ClaimsPage) -> str:
    """The claims with their verdicts, all encoders, and their scores on all needs."""
    rows = []
    for claim in content.judged:
        parts = "; ".join(f"{question(part)}: {measured(part.found) or part.verdict}" for part in claim.parts)
        other = claim.claim.conditions and f" Other conditions than the paper's: {claim.claim.conditions}"
        other += claim.claim.added and f" Added {claim.claim.added}"
        rows.append(ResultRow(f"{claim.claim.says} ({claim.claim.paper}){other}", (claim.verdict, parts)))
    tables = [ResultTable("Verdicts", ("claim", "verdict", "measured"), rows), _all_encoders(content.comparison)]
    if content.needs:
        needs = list(content.needs[0].needs)
        rows = [
            ResultRow(one.encoder, (*(_need_text(one, need) for need in needs), f"{100 * one.worst:.1f}"))
            for one in content.needs
        ]
        tables.append(ResultTable("One encoder for all needs", ("encoder", *needs, "largest shortfall"), rows))
    head = f"# Claims: {content.title}, dataset {content.world}\n\n{counts(content.judged)}\n\n{RULE}\n\n"
    return head + to_markdown(tables)


def verdicts(content: ClaimsPage) -> ResultTable:
    """The comparisons of each claim with their improvements, for the terminal."""
    rows = [
        ResultRow(question(part), (part.verdict, measured(part.found)), section=f"{claim.verdict}: {claim.claim.says}")
        for claim in content.judged
        for part in claim.parts
    ]
    columns = ("comparison", "verdict", "improvement [95%]")
    return ResultTable(f"Claims: {content.title}", columns, rows, notes=(counts(content.judged),))


def figures(content: ClaimsPage, results: Results) -> dict[str, Any]:
    """All values times 100 by encoder and metric, and the verdicts, for tables that others write (docs/scripts)."""
    encoders: dict[str, dict[str, Any]] = {encoder: {} for encoder in content.comparison.encoders}
    for metric, cells in content.comparison.cells.items():
        for encoder, cell in cells.items():
            found = {"value": _percent(cell.value.value), "interval": _percents(cell.value.low, cell.value.high)}
            found["seeds"] = (
                _percents(*results.value(encoder, metric).each) if results.measures(encoder, metric) else []
            )
            if cell.delta is not None:
                found["difference"] = _percents(cell.delta.value, cell.delta.low, cell.delta.high)
            encoders[encoder][metric] = found
    claims = [
        {
            "id": claim.name,
            "says": claim.claim.says,
            "paper": claim.claim.paper,
            "verdict": claim.verdict,
            "parts": [f"{question(part)}: {measured(part.found) or part.verdict}" for part in claim.parts],
        }
        for claim in content.judged
    ]
    return {
        "command": "make claims",
        "commit": content.commit,
        "seeds": list(content.seeds),
        "claims": claims,
        "encoders": encoders,
    }


def _percent(value: float) -> float:
    return round(100 * value, 2)


def _percents(*values: float) -> list[float]:
    return [_percent(value) for value in values]


def _need_text(one: AllNeeds, need: str) -> str:
    score = one.needs[need]
    text = f"{100 * score.value.value:.1f}"
    return f"**{text}**" if score.could_be_best else text
