"""The report of a table's validation: counts and reasons, the terminal's table, MLflow metrics, Data Docs.

The pages of Great Expectations fetch styles, scripts and a logo from public servers, and stay readable without them.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import Console
from rich.markup import escape
from rich.table import Table as TerminalTable

from components.captions.prompting.tasks import find_task
from components.captions.validation.rules.table import Rule, Synthesised
from components.captions.validation.suites import SuiteResult, make_context, row_expectation, share_expectation
from components.core.settings import Settings, Validate
from components.core.tables.files import atomic_folder

DOCUMENTED = 10_000
"""Largest number of a table's rows in its Data Docs."""
MOST_REASONS = 200
"""Largest number of a table's reasons in its reports: reasons may contain text from outside."""

_EXAMPLES, _TOP_REASONS = 5, 3
_NO_METRIC, _LONGEST = r"[^A-Za-z0-9_\-. /]", 120
"""Characters that MLflow refuses in a metric's name, and the longest reason in one."""
_REMEDIES = {
    "few_new_words": "a higher temperature of the task, or a smaller validate.min_new_words",
    "copies": "a higher temperature of the task",
    "similarity": "a lower temperature of the task, another model, or a smaller validate.min_similarity",
    "length": "another model, or validate.min_words and max_words",
    "lost_name": "another model, or validate.keep_names: false",
    "lost_detail": "another model, or validate.keep_details: false",
}
"""Part of a reason -> a change that keeps more rows."""
_TEMPLATES = Path(__file__).parent / "templates"
_DOCS_RESULTS = {
    "result_format": "SUMMARY", "unexpected_index_column_names": ["row"], "return_unexpected_index_query": False
}  # fmt: skip


def sample_rows(rows: int, most: int = DOCUMENTED) -> npt.NDArray[np.int64]:
    """Sorted numbers of `most` rows, drawn uniformly; all rows if there are fewer."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False)).astype(np.int64)


@dataclass(frozen=True)
class RejectedRow:
    """A rejected row: its pair and sample, its texts by column, and all its reasons."""

    row: int
    id: str
    sample: int
    texts: Mapping[str, str]
    reasons: tuple[str, ...]


@dataclass
class Tally:
    """Counts of a table, added shard by shard.

    Attributes:
        marked: rows by mark: `accepted`, `echo` (repeats the prompt), `leak` (contains evaluation text).
        examples: the first rejected rows of each of the first `MOST_REASONS` reasons.
        expectations: results of the suite of rows, over all shards, by column.
    """

    rows: int = 0
    shards: int = 0
    marked: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[RejectedRow]] = field(default_factory=dict)
    expectations: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add_suite(self, result: SuiteResult) -> None:
        """Add the results of a suite over one shard."""
        for new in result.expectations:
            total = self.expectations.setdefault(new["column"], new | {"success": True, "failing_rows": 0})
            total["success"] &= new["success"]
            total["failing_rows"] += new["failing_rows"]

    def add_rejected(self, row: RejectedRow) -> None:
        """Keep the row as an example of its reasons, where these have too few."""
        for reason in row.reasons:
            if reason in self.examples or len(self.examples) < MOST_REASONS:
                kept = self.examples.setdefault(reason, [])
                kept += [row] if len(kept) < _EXAMPLES else []

    def shares(self) -> dict[str, float]:
        """The share of rows with each mark."""
        return {mark: count / self.rows for mark, count in self.marked.items()}


@dataclass(frozen=True)
class TableReport:
    """The results of one table.

    Attributes:
        skipped: number of rows without a question, by task and reason.
        sample: a uniform sample of the rows, with the columns of the rules.
    """

    table: str
    tally: Tally
    shares: SuiteResult
    skipped: Mapping[str, Mapping[str, int]]
    sample: pd.DataFrame
    rules: list[Rule]
    share_rules: list[Rule]

    @property
    def accepted(self) -> int:
        """Number of rows for training."""
        return self.tally.marked["accepted"]

    @property
    def passed(self) -> bool:
        """Whether every share keeps its limit."""
        return self.shares.success

    def summary(self) -> dict[str, Any]:
        """Counts, reasons and expectations, for JSON."""
        tally = self.tally
        return {
            "passed": self.passed,
            "rows": tally.rows,
            "accepted": self.accepted,
            "quarantined": tally.rows - self.accepted,
            "shards": tally.shards,
            "rejected_by_reason": dict(tally.reasons),
            "skipped_questions": {task: dict(reasons) for task, reasons in self.skipped.items()},
            "expectations": [*tally.expectations.values(), *self.shares.expectations],
        }

    def metrics(self) -> dict[str, float]:
        """Counts as MLflow metrics `validate/<table>/...`; reasons that look alike to MLflow are added up."""
        tally, rejected = self.tally, Counter[str]()
        for reason, count in tally.reasons.most_common(MOST_REASONS):
            rejected[f"rejected/{re.sub(_NO_METRIC, '_', reason)[:_LONGEST]}"] += count
        values: dict[str, float] = {"rows": tally.rows, "accepted": self.accepted}
        values |= {"quarantined": tally.rows - self.accepted}
        values |= {f"{mark}_share": share for mark, share in tally.shares().items()}
        values |= {"skipped_questions": sum(sum(reasons.values()) for reasons in self.skipped.values()), **rejected}
        return {f"validate/{self.table}/{name}": float(value) for name, value in values.items()}

    def broken_limits(self, settings: Validate) -> list[str]:
        """One sentence for each broken limit of a share, with the commonest reasons."""
        limits = settings.limits(self.table).model_dump()
        own = settings.tables[self.table].model_fields_set if self.table in settings.tables else set()
        top = ", ".join(f"{reason} ({count})" for reason, count in self.tally.reasons.most_common(_TOP_REASONS))
        faults = []
        for fault in (result for result in self.shares.expectations if not result["success"]):
            name = fault["reason"]
            where = f"validate.tables.{self.table}.{name}" if name in own else f"validate.{name}"
            share = f"{self.table}: {fault['column']} share {fault['observed']:.3f}"
            lower = f"; lower it if {self.accepted:,} rows are enough" if name == "min_accepted_share" else ""
            faults.append(f"{share} breaks {where} {limits[name]} (top reasons: {top}{lower})")
        return faults

    @property
    def remedy(self) -> str:
        """One change that may raise the accepted share, by the commonest reason."""
        ((reason, _),) = self.tally.reasons.most_common(1) or [("", 0)]
        return next((remedy for part, remedy in _REMEDIES.items() if part in reason), "another model")

    def show(self) -> None:
        """Print the number of accepted rows and the reasons of the others."""
        view, rows = TerminalTable("table", "reason", title="synthesised tables"), self.tally.rows
        for heading in ("rows", "share"):
            view.add_column(heading, justify="right")
        share = f"{self.accepted / rows:.1%}"
        view.add_row(self.table, f"accepted of {rows}", str(self.accepted), share, style="bold")
        for reason, count in self.tally.reasons.most_common():
            view.add_row("", escape(reason), str(count), f"{count / rows:.1%}")
        Console().print(view)

    def write_docs(self, folder: Path) -> None:
        """Write the Data Docs, all or none; start reading at `index.html`."""
        context, (answers, shares) = make_context(), (f"{self.table}_answers", f"{self.table}_shares")
        # The pages of Great Expectations print values unescaped.
        texts = self.sample.select_dtypes(object).columns
        harmless = {name: self.sample[name].map(html.escape, na_action="ignore") for name in texts}
        _run_suite(context, answers, self.sample.assign(**harmless), self.rules, row_expectation)
        frame = pd.DataFrame([self.tally.shares()]).assign(row=0)
        _run_suite(context, shares, frame, self.share_rules, share_expectation)
        with atomic_folder(folder) as temporary:
            store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(temporary.resolve())}
            site = {"class_name": "SiteBuilder", "show_how_to_buttons": False, "store_backend": store}
            context.add_data_docs_site(
                "captions", site | {"site_index_builder": {"class_name": "DefaultSiteIndexBuilder"}}
            )
            context.build_data_docs()
            self._write_pages(temporary, answers, shares)

    def _write_pages(self, folder: Path, answers: str, shares: str) -> None:
        loader = FileSystemLoader(_TEMPLATES)
        environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        shown: dict[str, Any] = {"report": self, "documented": DOCUMENTED, "reasons_shown": MOST_REASONS}
        shown["style"] = (_TEMPLATES / "docs.css").read_text("utf-8")
        for name, suite in (("answers", answers), ("shares", shares)):
            (found,) = (folder / "validations" / suite).rglob("*.html")
            shown[name] = found.relative_to(folder).as_posix()
        for template, name in (("index", "index"), ("rejected", f"rejected_{self.table}")):
            (folder / f"{name}.html").write_text(
                environment.get_template(f"{template}.html.j2").render(**shown), "utf-8"
            )


def _run_suite(
    context: Any, name: str, frame: pd.DataFrame, rules: list[Rule], expectation: Callable[[Rule], Any]
) -> None:
    """Run a suite as a checkpoint, of which the context makes a page."""
    import great_expectations as gx
    from great_expectations.core.run_identifier import RunIdentifier

    assets = context.data_sources.add_pandas(name).add_dataframe_asset(name)
    batches = assets.add_batch_definition_whole_dataframe("sample")
    suite = context.suites.add(gx.ExpectationSuite(name, expectations=[expectation(rule) for rule in rules]))
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batches, suite=suite))
    checkpoint = gx.Checkpoint(name=name, validation_definitions=[definition], result_format=_DOCS_RESULTS)
    context.checkpoints.add(checkpoint).run(
        batch_parameters={"dataframe": frame}, run_id=RunIdentifier(run_name="validate")
    )


def prompts_of(table: Synthesised, settings: Settings) -> list[dict[str, str]]:
    """Task, source, model and text of each prompt of a table, for `summary.json` and the model card."""
    judged = settings.validation.limits(table.name).apply_judge
    names = []
    for answer in table.answers:
        candidate = find_task(answer.task).judges
        names += [name for name in (candidate, answer.task if judged or not candidate else None) if name]
    return [_prompt(name, settings) for name in names]


def _prompt(name: str, settings: Settings) -> dict[str, str]:
    task = find_task(name)
    options = settings.synthesize.tasks.get(name)
    messages = task.render({part: f"<{part}>" for part in task.inputs}, options.prompt if options else "own")
    model = "a model that is no longer in params.yaml"
    if options is not None:
        name_of_model = settings.synthesize.model_of(options)
        engine = settings.synthesize.llms.get(name_of_model, {})
        source = engine.get("model") or engine.get("adapter") or engine.get("engine", "unknown")
        model = f"{name_of_model} ({source}), temperature {options.temperature:g}, top-p {options.top_p:g}"
    text = " / ".join(" ".join(str(message["content"]).split()) for message in messages)
    return {"task": name, "citation": task.citation, "model": model, "prompt": text}
