"""Stage `validate`: the synthesised texts of one table that training may see, and a quarantine for the rest.

python -m components.validation.validate --table paraphrases
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import pyarrow.parquet as pq
import typer

from components.core import folders
from components.core.checking import load_checked
from components.core.discovery import choose
from components.core.errors import InputError
from components.core.files import write_json
from components.core.project import run_in_project, start
from components.core.records import SKIPPED
from components.core.settings import Settings
from components.data.leaks.report import FOLDER as LEAKS_FOLDER
from components.encoders.adapter.sidecar import SIDECAR, read_sidecar
from components.tracking import TrackedRun, tracked_run
from components.validation.joining.answers import join_answers
from components.validation.measuring.probes import Probes, find_probes
from components.validation.reporting.docs import Documented, write_docs
from components.validation.reporting.prompts import prompts_of
from components.validation.reporting.report import Outcome, broken_limits, metrics_of, show
from components.validation.rules import row_rules, share_rules
from components.validation.shards import TableCheck
from components.validation.suites import Suites
from components.validation.table import Synthesised
from components.validation.tables import find_table

REJECTED = "rejected.parquet"


@dataclass(frozen=True)
class Files:
    """What the stage reads and writes; in `captions`, `quarantine` and `docs` each table has a folder of its own.

    The folders of accepted rows, which params.yaml names, are below `project`.
    """

    captions: Path = Path("data/captions")
    pairs: Path = folders.PAIRS / "train.parquet"
    evaluation: Path = folders.EVALUATION
    encoder: Path = folders.BASE
    project: Path = Path()
    quarantine: Path = folders.QUARANTINE
    docs: Path = Path("reports/data_docs")
    leaks: Path = LEAKS_FOLDER

    def inputs(self, table: str) -> dict[str, Path]:
        """What a table's results depend on."""
        read = {"captions": self.captions / table, "pairs": self.pairs}
        read |= {"evaluation": self.evaluation, "leaks": self.leaks}
        return read | {"encoder": self.encoder / SIDECAR}


def run(
    settings: Settings,
    name: str,
    files: Files | None = None,
    probes: Probes | None = None,
    tracked: TrackedRun | None = None,
) -> None:
    """Write the table `name`, its quarantine with `summary.json`, and its Data Docs.

    Every joined row ends in the table or in its quarantine. When a share breaks its limit everything is still
    written, so that the user can look, and logged to `tracked` if there is one.

    Raises:
        InputError: params.yaml has no such table, an input is missing or damaged, or a table-level limit of `validate`
            is broken.
    """
    files = files or Files()
    table = find_table(choose(list(settings.validation.tables), name, "params.yaml: validate.tables:"))
    probes = probes or find_probes(settings, files.evaluation, files.leaks)
    checked = _validate(table, settings, files, probes, Suites())
    _report(files, checked, prompts_of(table, settings), tracked)
    if broken := broken_limits(checked.outcome, settings.validation):
        pages = files.docs / name / "index.html"
        raise InputError(f"{'; '.join(broken)}: look at {pages} and {files.quarantine / name}")


def run_tracked(settings: Settings, name: str, files: Files | None = None, probes: Probes | None = None) -> None:
    """`run` as an MLflow run, with the counts as metrics, and the summary, the Data Docs and pictures as artifacts.

    Raises:
        InputError: see `run`; the MLflow run ends as failed.
    """
    files = files or Files()
    params = settings.validation.model_dump(mode="json", exclude={"tables"})
    if own := settings.validation.tables.get(name):
        params |= own.model_dump(mode="json", exclude_unset=True)
    with tracked_run("validate", name, settings, params, files.inputs(name)) as tracked:
        run(settings, name, files, probes, tracked)


def _validate(table: Synthesised, settings: Settings, files: Files, probes: Probes, suites: Suites) -> Documented:
    """Check the table and write its accepted and its rejected rows."""
    limits = settings.validation.limits(table.name)
    table = table if limits.judged else table.unjudged()
    answers, quarantine = files.captions / table.name, files.quarantine / table.name
    with join_answers(table, answers, files.pairs, quarantine) as joined:
        if settings.validation.check_facts and table.about == "captions":
            joined.require_facts(files.pairs)
        rules = row_rules(table, limits, read_sidecar(files.encoder).context_length)
        check = TableCheck(table, limits, rules, probes, suites, settings.validation.shard_rows)
        accepted = files.project / settings.validation.file(table.name)
        checked = check.run(joined, accepted, quarantine / REJECTED)
    shares = pd.DataFrame([checked.tally.shares()]).assign(row=0)
    result = suites.check_shares(f"{table.name}_shares", shares, share_rules(limits))
    outcome = Outcome(table.name, checked.tally, result, _skipped(table, answers))
    return Documented(outcome, checked.sample, rules, share_rules(limits), checked.quality)


def _skipped(table: Synthesised, folder: Path) -> dict[str, dict[str, int]]:
    """Rows that the table's tasks did not ask about, by task and reason, as the synthesize stage counted them."""
    counts = {}
    for answer in table.answers:
        metadata = pq.read_metadata(folder / f"{answer.task}.parquet").metadata or {}
        counts[answer.task] = json.loads(metadata.get(SKIPPED.encode(), b"{}"))
    return counts


def _report(files: Files, checked: Documented, prompts: list[dict[str, str]], tracked: TrackedRun | None) -> None:
    outcome = checked.outcome
    summary, docs = files.quarantine / outcome.table / folders.SUMMARY, files.docs / outcome.table
    write_json(summary, outcome.summary() | {"prompts": prompts})
    write_docs(docs, checked)
    show(outcome)
    if tracked is not None:
        tracked.log_metrics(metrics_of(outcome))
        for path in (summary, docs):
            tracked.log_artifact(path)


def main(table: Annotated[str, typer.Option(help="A key of validate.tables.")]) -> None:
    """Check what language models wrote for a table.

    Example: python -m components.validation.validate --table paraphrases
    """
    run_in_project(lambda: run_tracked(load_checked(), table))


if __name__ == "__main__":
    start(main)
