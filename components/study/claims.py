"""Stage `claims`: decides which claims of a file hold for the encoders of the study."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from components.core.compute.provenance import git_commit
from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.project import in_project, start
from components.core.tables.files import atomic_file
from components.core.tables.folders import BASE
from components.evaluation.results import DEFAULT, Folders
from components.study import page
from components.study.results import comparison_over_seeds, rank_for_all_needs, read_results, regressions
from components.study.rules import CLAIMS, judge, read_claims
from components.study.seeds import folders_of

REPORTS = Path("reports/claims")


def run(
    settings: Settings, name: str, seeds: Mapping[int, Folders], reports: Path = REPORTS, claims: Path = CLAIMS
) -> page.ClaimsPage:
    """Write `<name>.html`, `<name>.md` and `<name>.json`; returns their content."""
    rules = read_claims(name, claims)
    results = read_results(_measured(settings, seeds.values()), list(seeds.values()), settings.evaluate)
    comparison = comparison_over_seeds(results, rules.metrics)
    content = page.ClaimsPage(
        title=name,
        world=settings.dataset.name,
        seeds=tuple(seeds),
        commit=git_commit(),
        judged=[judge(short, claim, results) for short, claim in rules.claims.items()],
        comparison=comparison,
        families=rules.families,
        bars=rules.plots,
        needs=rank_for_all_needs(results, rules.families),
        regressions=regressions(comparison),
    )
    figures = json.dumps(page.figures(content, results), indent=1)
    for ending, text in (("html", page.page(content)), ("md", page.markdown(content)), ("json", figures)):
        with atomic_file(reports / f"{name}.{ending}") as temporary:
            temporary.write_text(text, encoding="utf-8")
    return content


def _measured(settings: Settings, seeds: Iterable[Folders]) -> list[str]:
    """The study's encoders, without those that have results of no seed, as in an older study."""
    encoders = [BASE.name, *settings.study.encoders, *settings.study.mixes]
    known = {path.stem for folders in seeds for path in folders.metrics.glob("*.json")}
    if missing := [name for name in encoders[1:] if name not in known]:
        print(f"not measured, without results of any seed: {', '.join(missing)}")
    return [name for name in encoders if name not in missing]


def show(content: page.ClaimsPage) -> None:
    """Print the claims with their verdicts."""
    table = Table("claim", "verdict", "comparison", "improvement [95%]", title=f"Claims: {content.title}")
    for claim in content.judged:
        for number, part in enumerate(claim.parts):
            first = (claim.claim.says, claim.verdict) if number == 0 else ("", "")
            table.add_row(*first, page.question(part), page.measured(part.found) or part.verdict)
        table.add_section()
    Console().print(table)
    print(page.counts(content.judged))


@in_project
def main(claims: Annotated[str, typer.Option(help="A file of infra/claims/, without .yaml.")]) -> None:
    """Decide the claims of a file by the results of all seeds.

    Example: python -m components.study.claims --claims papers
    """
    settings = load_checked(entries=())
    others = {seed: folders_of(seed) for seed in settings.study.seeds}
    show(run(settings, claims, {settings.train.seed: DEFAULT} | others))
    print(f"page: {REPORTS / claims}.html; table: {REPORTS / claims}.md")


if __name__ == "__main__":
    start(main)
