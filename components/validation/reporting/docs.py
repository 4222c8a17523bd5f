"""Data Docs: a page per suite by Great Expectations, a page of rejected rows per table, and an index.

The index and the rejected rows need nothing else. The pages of Great Expectations are published as it makes them: a
browser fetches their styles, scripts and logo from public servers, and shows them plain where it cannot.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from components.core.files import atomic_folder
from components.validation.reporting.quality import Quality
from components.validation.reporting.report import DOCUMENTED, MOST_REASONS, Outcome
from components.validation.rules import Rule
from components.validation.suites import make_context, row_expectation, share_expectation

_TEMPLATES = Path(__file__).parent / "templates"
_RESULT_FORMAT = {
    "result_format": "SUMMARY",
    "unexpected_index_column_names": ["row"],
    "return_unexpected_index_query": False,
}


@dataclass(frozen=True)
class Documented:
    """What the Data Docs show of a table: its outcome, a sample of its rows with the rules, its shares' rules."""

    outcome: Outcome
    sample: pd.DataFrame
    rules: list[Rule]
    share_rules: list[Rule]
    quality: Quality


def write_docs(folder: Path, table: Documented) -> None:
    """Write a table's Data Docs, `index.html` first to read; whole or not at all."""
    context, name = make_context(), table.outcome.table
    _run_suite(context, f"{name}_answers", _harmless(table.sample), table.rules, row_expectation)
    shares = pd.DataFrame([table.outcome.tally.shares()]).assign(row=0)
    _run_suite(context, f"{name}_shares", shares, table.share_rules, share_expectation)
    with atomic_folder(folder) as temporary:
        _build(context, temporary)
        _write_pages(temporary, table.outcome, table.quality.write(temporary / "quality"))


def _run_suite(
    context: Any, name: str, frame: pd.DataFrame, rules: list[Rule], expectation: Callable[[Rule], Any]
) -> None:
    """Run a suite so that the context remembers it for its pages."""
    import great_expectations as gx
    from great_expectations.core.run_identifier import RunIdentifier

    assets = context.data_sources.add_pandas(name).add_dataframe_asset(name)
    batches = assets.add_batch_definition_whole_dataframe("sample")
    suite = context.suites.add(gx.ExpectationSuite(name, expectations=[expectation(rule) for rule in rules]))
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batches, suite=suite))
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(name=name, validation_definitions=[definition], result_format=_RESULT_FORMAT)
    )
    checkpoint.run(batch_parameters={"dataframe": frame}, run_id=RunIdentifier(run_name="validate"))


def _harmless(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts as HTML shows them: the pages of Great Expectations print values as they are."""
    texts = frame.select_dtypes(object).columns
    return frame.assign(**{name: frame[name].map(html.escape, na_action="ignore") for name in texts})


def _build(context: Any, folder: Path) -> None:
    """Let Great Expectations write its pages."""
    context.add_data_docs_site(
        "captions",
        {
            "class_name": "SiteBuilder",
            "show_how_to_buttons": False,
            "store_backend": {
                "class_name": "TupleFilesystemStoreBackend",
                "base_directory": str(folder.resolve()),
            },
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        },
    )
    context.build_data_docs()


def _write_pages(folder: Path, outcome: Outcome, pictures: Sequence[Path]) -> None:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    shown = {
        "outcome": outcome,
        "style": (_TEMPLATES / "docs.css").read_text("utf-8"),
        "documented": DOCUMENTED,
        "reasons_shown": MOST_REASONS,
        "answers": _page(folder, f"{outcome.table}_answers"),
        "shares": _page(folder, f"{outcome.table}_shares"),
        "pictures": [path.relative_to(folder) for path in pictures],
    }
    for template, page in (("index.html.j2", "index.html"), ("rejected.html.j2", f"rejected_{outcome.table}.html")):
        (folder / page).write_text(environment.get_template(template).render(**shown), "utf-8")


def _page(folder: Path, suite: str) -> str:
    (found,) = (folder / "validations" / suite).rglob("*.html")
    return found.relative_to(folder).as_posix()
