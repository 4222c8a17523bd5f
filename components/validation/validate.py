"""Stage `validate`: the synthesised texts that training may see, and a quarantine for the rest.

python -m components.validation.validate
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from components.encoders.sidecar import read_sidecar
from components.errors import InputError, run_command
from components.files import write_json
from components.records import Table, quarantine_of
from components.settings import Settings, load_settings
from components.validation.columns import add_columns, measured
from components.validation.joining import join_answers
from components.validation.probes import Probes, find_probes
from components.validation.report import Outcome, broken_limits, show
from components.validation.rules import row_rules, share_rules
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


def run(settings: Settings, files: Files | None = None, probes: Probes | None = None) -> None:
    """Write every table that the tasks of params.yaml make, a quarantine for each, `summary.json` and the Data Docs.

    Every joined row ends in its table or in its quarantine. When a share breaks its limit everything is still
    written, so that the user can look.

    Raises:
        InputError: an input is missing or damaged, or a table-level limit of `validate` is broken.
    """
    files = files or Files()
    for name in settings.validation.tables:
        find_table(name, "params.yaml: validate.tables has")
    tables = tables_of(settings.synthesize.tasks)
    probes = probes or find_probes(settings, files.evaluation)
    suites = Suites()
    outcomes = [_validate(table, settings, files, probes, suites) for table in tables]
    summary = {
        "passed": all(outcome.passed for outcome in outcomes),
        "tables": {outcome.table: outcome.summary() for outcome in outcomes},
    }
    write_json(files.validated / "summary.json", summary)
    suites.write_docs(files.docs)
    show(outcomes)
    broken = [fault for outcome in outcomes for fault in broken_limits(outcome, settings.validation)]
    if broken:
        raise InputError(f"{'; '.join(broken)}: look at {files.docs / 'index.html'} and {files.validated}")


def _validate(table: Synthesised, settings: Settings, files: Files, probes: Probes, suites: Suites) -> Outcome:
    """Check one table and write its accepted and its rejected rows."""
    limits = settings.validation.limits(table.name)
    joined = join_answers(table, files.captions, files.pairs)
    if settings.validation.check_facts:
        _want_facts(joined, files.pairs)
    frame = add_columns(joined, table, probes)
    rules = row_rules(table, limits, read_sidecar(files.encoder).context_length)
    rows = suites.check_rows(f"{table.name}_answers", frame, rules)
    failing = frame["row"].isin(list(rows.failures))
    accepted, rejected = frame[~failing], frame[failing]
    shares = suites.check_shares(f"{table.name}_shares", _marks(frame, table, failing), share_rules(limits))
    kept = suites.check_rows(f"{table.name}_accepted", accepted, rules)
    _write(table.table, files.validated / f"{table.name}.parquet", accepted)
    reasons = [";".join(rows.failures[row]) for row in rejected["row"]]
    quarantine = files.validated / f"{table.quarantine}.parquet"
    _write(quarantine_of(table.table), quarantine, rejected.assign(reason=reasons))
    counts = Counter(reason for found in rows.failures.values() for reason in found)
    return Outcome(table.name, len(frame), len(accepted), counts, rows, shares, kept)


def _want_facts(joined: pd.DataFrame, pairs: Path) -> None:
    other = joined["other_id"].notna() & joined["other_facts"].isna()
    without = joined[joined["facts"].isna() | other]
    if len(without):
        pair = without.iloc[0]["id" if without.iloc[0]["facts"] is None else "other_id"]
        raise InputError(f"{pairs}: pair {pair} has no facts: set validate.check_facts to false in params.yaml")


def _marks(frame: pd.DataFrame, table: Synthesised, failing: pd.Series[bool]) -> pd.DataFrame:
    """Per row, 1.0 where it is accepted, where an answer echoes the prompt and where one gives evaluation away."""
    marks = {"accepted": ~failing}
    for name in ("echo", "leak"):
        columns = [measured(name, answer) for answer in table.answers]
        marks[name] = frame[columns].notna().any(axis=1)
    return pd.DataFrame({name: mark.astype(float) for name, mark in marks.items()}).assign(row=frame["row"])


def _write(table: Table, path: Path, frame: pd.DataFrame) -> None:
    table.write(path, pa.Table.from_pandas(frame[table.schema.names], schema=table.schema, preserve_index=False))


if __name__ == "__main__":
    run_command(lambda: run(load_settings()))
