"""Stage `claims`: decides which claims of a file hold for the encoders of the study."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from components.core.compute.provenance import git_commit
from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.project import in_project, start
from components.core.tables.folders import BASE
from components.evaluation.report.formats import write_text
from components.evaluation.scoring.results import DEFAULT, Folders
from components.evaluation.scoring.terminal import print_results
from research.claims import page
from research.claims.results import comparison_over_seeds, rank_for_all_needs, read_results, regressions
from research.claims.rules import CLAIMS, judge, read_claims
from research.claims.seeds import folders_of

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
        write_text(reports / f"{name}.{ending}", text)
    return content


def _measured(settings: Settings, seeds: Iterable[Folders]) -> list[str]:
    """The study's encoders, without those that have results of no seed, as in an older study."""
    encoders = [BASE.name, *settings.study.encoders, *settings.study.mixes]
    known = {path.stem for folders in seeds for path in folders.metrics.glob("*.json")}
    if missing := [name for name in encoders[1:] if name not in known]:
        print(f"not measured, without results of any seed: {', '.join(missing)}")
    return [name for name in encoders if name not in missing]


@in_project
def main(claims: Annotated[str, typer.Option(help="A file of research/papers/, without .yaml.")]) -> None:
    """Decide the claims of a file by the results of all seeds.

    Example: python -m research.claims.claims --claims papers
    """
    settings = load_checked(entries=())
    others = {seed: folders_of(seed) for seed in settings.study.seeds}
    print_results(page.verdicts(run(settings, claims, {settings.train.seed: DEFAULT} | others)))
    print(f"page: {REPORTS / claims}.html; table: {REPORTS / claims}.md")


if __name__ == "__main__":
    start(main)
