"""Stage `validate`: the synthesised texts that training may see, and a quarantine for the rest.

python -m components.validation.validate
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from components.core.checking import load_checked
from components.core.errors import InputError
from components.core.files import write_json
from components.core.project import run_in_project
from components.core.records import SKIPPED
from components.core.settings import Settings
from components.encoders.adapter.sidecar import SIDECAR, read_sidecar
from components.tracking import TrackedRun, tracked_run
from components.validation.joining.answers import join_answers
from components.validation.measuring.probes import Probes, find_probes
from components.validation.reporting.docs import Documented, write_docs
from components.validation.reporting.report import Outcome, broken_limits, metrics_of, show
from components.validation.rules import row_rules, share_rules
from components.validation.shards import TableCheck
from components.validation.suites import Suites
from components.validation.table import Synthesised
from components.validation.tables import find_table, tables_of


@dataclass(frozen=True)
class Files:
    """What the stage reads and writes."""

    captions: Path = Path("data/captions")
    pairs: Path = Path("data/pairs/train.parquet")
    evaluation: Path = Path("data/evaluation")
    encoder: Path = Path("models/base")
    validated: Path = Path("data/validated")
    docs: Path = Path("reports/data_docs")
    leaks: Path = Path("data/leaks")

    @property
    def inputs(self) -> dict[str, Path]:
        """What the results depend on."""
        read = {"captions": self.captions, "pairs": self.pairs, "evaluation": self.evaluation, "leaks": self.leaks}
        return read | {"encoder": self.encoder / SIDECAR}


def run(
    settings: Settings, files: Files | None = None, probes: Probes | None = None, tracked: TrackedRun | None = None
) -> None:
    """Write every table that the tasks of params.yaml make, a quarantine for each, `summary.json` and the Data Docs.

    Every joined row ends in its table or in its quarantine. When a share breaks its limit everything is still
    written, so that the user can look, and logged to `tracked` if there is one.

    Raises:
        InputError: an input is missing or damaged, or a table-level limit of `validate` is broken.
    """
    files = files or Files()
    for name in settings.validation.tables:
        find_table(name, "params.yaml: validate.tables has")
    tables = tables_of(settings.synthesize.tasks)
    probes = probes or find_probes(settings, files.evaluation, files.leaks)
    suites = Suites()
    checked = [_validate(table, settings, files, probes, suites) for table in tables]
    outcomes = [table.outcome for table in checked]
    _report(files, checked, outcomes, tracked)
    broken = [fault for outcome in outcomes for fault in broken_limits(outcome, settings.validation)]
    if broken:
        raise InputError(f"{'; '.join(broken)}: look at {files.docs / 'index.html'} and {files.validated}")


def run_tracked(settings: Settings, files: Files | None = None, probes: Probes | None = None) -> None:
    """`run` as an MLflow run, with the counts as metrics, and the summary, the Data Docs and pictures as artifacts.

    Raises:
        InputError: see `run`; the MLflow run ends as failed.
    """
    files = files or Files()
    params = settings.validation.model_dump(mode="json")
    with tracked_run("validate", "validate", settings, params, files.inputs) as tracked:
        run(settings, files, probes, tracked)


def _validate(table: Synthesised, settings: Settings, files: Files, probes: Probes, suites: Suites) -> Documented:
    """Check one table and write its accepted and its rejected rows."""
    limits = settings.validation.limits(table.name)
    table = table if limits.judged else table.unjudged()
    with join_answers(table, files.captions, files.pairs, files.validated) as joined:
        if settings.validation.check_facts and table.about == "captions":
            joined.require_facts(files.pairs)
        rules = row_rules(table, limits, read_sidecar(files.encoder).context_length)
        check = TableCheck(table, limits, rules, probes, suites, settings.validation.shard_rows)
        accepted, rejected = (files.validated / f"{name}.parquet" for name in (table.name, table.quarantine))
        checked = check.run(joined, accepted, rejected)
    shares = pd.DataFrame([checked.tally.shares()]).assign(row=0)
    result = suites.check_shares(f"{table.name}_shares", shares, share_rules(limits))
    outcome = Outcome(table.name, checked.tally, result, _skipped(table, files.captions))
    return Documented(outcome, checked.sample, rules, share_rules(limits), checked.quality)


def _skipped(table: Synthesised, folder: Path) -> dict[str, dict[str, int]]:
    """Rows that the table's tasks did not ask about, by task and reason, as the synthesize stage counted them."""
    counts = {}
    for answer in table.answers:
        metadata = pq.read_metadata(folder / f"{answer.task}.parquet").metadata or {}
        counts[answer.task] = json.loads(metadata.get(SKIPPED.encode(), b"{}"))
    return counts


def _report(
    files: Files, checked: Sequence[Documented], outcomes: Sequence[Outcome], tracked: TrackedRun | None
) -> None:
    summary = {
        "passed": all(outcome.passed for outcome in outcomes),
        "tables": {outcome.table: outcome.summary() for outcome in outcomes},
    }
    write_json(files.validated / "summary.json", summary)
    write_docs(files.docs, checked)
    show(outcomes)
    if tracked is not None:
        for outcome in outcomes:
            tracked.log_metrics(metrics_of(outcome))
        for path in (files.validated / "summary.json", files.docs):
            tracked.log_artifact(path)


if __name__ == "__main__":
    run_in_project(lambda: run_tracked(load_checked()))
