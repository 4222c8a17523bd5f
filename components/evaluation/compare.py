"""Stage `compare`: all encoders side by side as CSV, Markdown and a page.

python -m components.evaluation.compare
python -m components.evaluation.compare --print-only
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from components.encoders.sidecar import Sidecar, read_sidecar
from components.errors import InputError, run_command
from components.evaluation import comparison_csv
from components.evaluation.comparison import Comparison, compare
from components.evaluation.folders import DEFAULT, Folders
from components.evaluation.results import Report, read_report, read_scores
from components.evaluation.tables import print_comparison
from components.evaluation.wording import markdown
from components.files import atomic_file
from components.settings import Settings, load_settings


def run(settings: Settings, folders: Folders = DEFAULT) -> Comparison:
    """Write `comparison.csv`, `comparison.md` and `comparison.html`; returns the comparison.

    Raises:
        InputError: an encoder has no results, or results that do not fit the others' or its weights.
    """
    from components.evaluation import report as rendering
    from components.evaluation.gallery import build_gallery

    reports = [read_report(name, folders.metrics) for name in settings.encoders]
    scores = [read_scores(report, folders.per_query) for report in reports]
    sidecars = [_sidecar(report, folders.models) for report in reports]
    comparison = compare(reports, scores, settings.evaluate.bootstrap, settings.evaluate.seed)
    rankings = {report.encoder: found.rankings for report, found in zip(reports, scores, strict=True)}
    gallery = build_gallery(settings, comparison, rankings, folders)
    comparison_csv.write(comparison, folders.csv)
    _write(folders.reports / "comparison.md", markdown(comparison, settings.promote.primary))
    _write(folders.reports / "comparison.html", rendering.page(settings, comparison, reports[0], sidecars, gallery))
    return comparison


def _sidecar(report: Report, models: Path) -> Sidecar:
    """The sidecar of the encoder that `report` is about."""
    sidecar = read_sidecar(models / report.encoder)
    if sidecar.weights_sha256 != report.encoder_sha256:
        raise InputError(
            f"{models / report.encoder} changed after it was evaluated: "
            f"run `python -m components.evaluation.evaluate --encoder {report.encoder}`"
        )
    return sidecar


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def main(
    print_only: Annotated[
        bool, typer.Option("--print-only", help="Print the table of the last comparison; compute nothing.")
    ] = False,
    groups: Annotated[bool, typer.Option("--groups", help="Also print the metrics by group of queries.")] = False,
) -> None:
    """Compare all encoders of params.yaml and print the table.

    Examples: python -m components.evaluation.compare; python -m components.evaluation.compare --print-only --groups
    """

    def command() -> None:
        settings = load_settings()
        comparison = comparison_csv.read(DEFAULT.csv) if print_only else run(settings)
        print_comparison(comparison, settings.promote.primary, groups)

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
