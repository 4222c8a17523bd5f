"""Stage `validate`: the synthesised captions that training may see, and a quarantine for the rest.

python -m components.validation.validate
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from rich.console import Console
from rich.table import Table as View

from components.encoders.sidecar import read_sidecar
from components.encoders.tokens import token_lengths
from components.errors import InputError, run_command
from components.files import write_json
from components.records import PARAPHRASES, QUARANTINE, Table
from components.settings import Settings, load_settings
from components.validation import world_checks
from components.validation.columns import Probes, add_columns
from components.validation.joining import join_answers
from components.validation.leaks import evaluation_sentences
from components.validation.rules import row_rules, share_rules
from components.validation.similarity import similarities
from components.validation.suites import SuiteResult, Suites
from components.validation.words import normalised

_TOP_REASONS = 3


@dataclass(frozen=True)
class Files:
    """What the stage reads and writes."""

    paraphrase_1: Path = Path("data/captions/paraphrase_1.parquet")
    paraphrase_2: Path = Path("data/captions/paraphrase_2.parquet")
    pairs: Path = Path("data/pairs/train.parquet")
    evaluation: Path = Path("data/evaluation")
    encoder: Path = Path("models/base")
    validated: Path = Path("data/validated")
    docs: Path = Path("reports/data_docs")


def run(settings: Settings, files: Files | None = None, probes: Probes | None = None) -> None:
    """Write `paraphrases.parquet`, `quarantine.parquet` and `summary.json`, and the Data Docs.

    Every joined row ends in one of the two tables. When a share breaks its limit everything is still written, so
    that the user can look.

    Raises:
        InputError: an input is missing or damaged, or a table-level limit of `validate` is broken.
    """
    files = files or Files()
    probes = probes or find_probes(settings, files)
    joined = join_answers(files.paraphrase_1, files.paraphrase_2, files.pairs)
    if settings.validation.check_facts:
        _want_facts(joined, files.pairs)
    context_length = read_sidecar(files.encoder).context_length
    frame = add_columns(joined, probes)
    suites, rules = Suites(), row_rules(settings.validation, context_length)
    rows = suites.check_rows("answers", frame, rules)
    failing = frame["row"].isin(list(rows.failures))
    accepted, rejected = frame[~failing], frame[failing]
    shares = suites.check_shares("shares", _marks(frame, failing), share_rules(settings.validation))
    kept = suites.check_rows("accepted", accepted, rules)
    reasons = Counter(reason for found in rows.failures.values() for reason in found)
    _write(PARAPHRASES, files.validated / "paraphrases.parquet", accepted)
    quarantine = rejected.assign(reason=[";".join(rows.failures[row]) for row in rejected["row"]])
    _write(QUARANTINE, files.validated / "quarantine.parquet", quarantine)
    write_json(files.validated / "summary.json", _summary(len(frame), len(accepted), reasons, (rows, shares, kept)))
    suites.write_docs(files.docs)
    _show(len(frame), len(accepted), reasons)
    _refuse_broken(shares, settings, reasons, files)


def find_probes(settings: Settings, files: Files) -> Probes:
    """The probes that fit the source: only the embedded world can check facts, frames and its last tier of words.

    Raises:
        InputError: facts are to be checked where there are none.
    """
    sentences = evaluation_sentences(files.evaluation)
    embedded = settings.prepare.source == "embedded"
    if settings.validation.check_facts and not embedded:
        raise InputError("params.yaml: validate.check_facts needs prepare.source 'embedded': set it to false")

    def find_leak(text: str) -> str | None:
        if normalised(text) in sentences:
            return "sentence"
        return world_checks.find_leak(text) if embedded else None

    find_fault = world_checks.find_fault if settings.validation.check_facts else _no_fault
    return Probes(token_lengths, similarities, find_leak, find_fault)


def _no_fault(_text: str, _facts: str) -> None:
    return None


def _want_facts(joined: pd.DataFrame, pairs: Path) -> None:
    without = joined[joined["facts"].isna()]
    if len(without):
        raise InputError(
            f"{pairs}: pair {without.iloc[0]['id']} has no facts: set validate.check_facts to false in params.yaml"
        )


def _marks(frame: pd.DataFrame, failing: pd.Series[bool]) -> pd.DataFrame:
    """Per row, 1.0 where it is accepted, where an answer echoes the prompt and where one gives evaluation away."""
    echo, leak = (frame[f"{name}_1"].notna() | frame[f"{name}_2"].notna() for name in ("echo", "leak"))
    marks = {"accepted": ~failing, "echo": echo, "leak": leak}
    return pd.DataFrame({name: mark.astype(float) for name, mark in marks.items()}).assign(row=frame["row"])


def _write(table: Table, path: Path, frame: pd.DataFrame) -> None:
    table.write(path, pa.Table.from_pandas(frame[table.schema.names], schema=table.schema, preserve_index=False))


def _summary(rows: int, accepted: int, reasons: Counter[str], suites: Iterable[SuiteResult]) -> dict[str, Any]:
    results = {suite.name: suite for suite in suites}
    return {
        "passed": results["shares"].success and results["accepted"].success,
        "rows": rows,
        "accepted": accepted,
        "quarantined": rows - accepted,
        "rejected_by_reason": dict(reasons),
        "expectations": [expectation for suite in results.values() for expectation in suite.expectations],
    }


def _show(rows: int, accepted: int, reasons: Counter[str]) -> None:
    view = View(title=f"{accepted} of {rows} rows accepted, {rows - accepted} quarantined")
    view.add_column("reason")
    view.add_column("rows", justify="right")
    view.add_column("share", justify="right")
    for reason, count in reasons.most_common():
        view.add_row(reason, str(count), f"{count / rows:.1%}")
    Console().print(view)


def _refuse_broken(shares: SuiteResult, settings: Settings, reasons: Counter[str], files: Files) -> None:
    broken = [expectation for expectation in shares.expectations if not expectation["success"]]
    if broken:
        limits = settings.validation.model_dump()
        faults = ", ".join(
            f"{fault['column']} share {fault['observed']:.3f} breaks validate.{fault['reason']} "
            f"{limits[fault['reason']]}"
            for fault in broken
        )
        top = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common(_TOP_REASONS))
        raise InputError(f"{faults}; top reasons: {top}: look at {files.docs / 'index.html'} and {files.validated}")


if __name__ == "__main__":
    run_command(lambda: run(load_settings()))
