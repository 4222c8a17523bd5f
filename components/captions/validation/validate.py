"""Stage `validate`: splits the synthesised texts of one table into rows for training and a quarantine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from components.captions.prompting.tasks import find_task
from components.captions.validation.joining import JoinedAnswers, join_answers
from components.captions.validation.report import RejectedRow, TableReport, Tally, prompts_of, sample_rows
from components.captions.validation.rules.probes import Probes, find_probes
from components.captions.validation.rules.table import Rule, Synthesised, add_columns, measured, row_rules, share_rules
from components.captions.validation.rules.tables import find_table
from components.captions.validation.suites import Suites
from components.core.settings import Limits, Settings
from components.core.system.checking import load_checked
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.core.system.project import run_in_project, start
from components.core.tables import folders
from components.core.tables.files import write_json
from components.core.tables.records import SKIPPED, quarantine_of
from components.core.tables.table import Table
from components.core.text.languages import ENGLISH, detected, language_name
from components.core.tracking import TrackedRun, tracked_run
from components.data.leaks.report import FOLDER as LEAKS_FOLDER
from components.data.world.fact_checks import ORDINAL
from components.encoders.adapter.sidecar import SIDECAR, read_sidecar

REJECTED = "rejected.parquet"
_ROW_GROUP = 50_000
_SAMPLE = 1000
"""Number of captions from which the languages are detected."""
_Write = Callable[[pd.DataFrame], None]


@dataclass(frozen=True)
class ValidationFiles:
    """Inputs and outputs of the stage; `captions`, `quarantine` and `docs` have a folder for each table.

    The folders of accepted rows, which params.yaml names, are in `project`.
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
        """The inputs of a table's results."""
        inputs = {"captions": self.captions / table, "pairs": self.pairs}
        inputs |= {"evaluation": self.evaluation, "leaks": self.leaks}
        if (written := self.evaluation.with_name(folders.TEST_SET.name)).is_dir():
            inputs["test_set"] = written
        return inputs | {"encoder": self.encoder / SIDECAR}


def run(
    settings: Settings,
    name: str,
    files: ValidationFiles | None = None,
    probes: Probes | None = None,
    tracked: TrackedRun | None = None,
) -> None:
    """Write the table `name`, its quarantine with `summary.json`, and its Data Docs.

    Every joined row is in the table or in its quarantine. If a share breaks its limit, everything is still written
    for inspection, and logged to `tracked` if there is one.
    """
    files = files or ValidationFiles()
    table = find_table(choose(list(settings.validation.tables), name, "params.yaml: validate.tables:"))
    probes = probes or find_probes(settings, files.evaluation, files.leaks)
    report = _validate(table, settings, files, probes)
    summary, docs = files.quarantine / name / folders.SUMMARY, files.docs / name
    write_json(summary, report.summary() | {"prompts": prompts_of(table, settings)})
    report.write_docs(docs)
    report.show()
    if tracked is not None:
        tracked.log_metrics(report.metrics())
        for path in (summary, docs):
            tracked.log_artifact(path)
    if broken := report.broken_limits(settings.validation):
        pages = f"{docs / 'index.html'} and {files.quarantine / name}"
        raise InputError(f"{'; '.join(broken)}: look at {pages}, then try {report.remedy}")


def run_tracked(
    settings: Settings, name: str, files: ValidationFiles | None = None, probes: Probes | None = None
) -> None:
    """`run` as an MLflow run, with the counts as metrics, and the summary and the Data Docs as artifacts.

    If `run` raises InputError, the MLflow run ends as failed.
    """
    files = files or ValidationFiles()
    params = settings.validation.model_dump(mode="json", exclude={"tables"})
    if own := settings.validation.tables.get(name):
        params |= own.model_dump(mode="json", exclude_unset=True)
    with tracked_run("validate", name, settings, params, files.inputs(name)) as tracked:
        run(settings, name, files, probes, tracked)


def _validate(table: Synthesised, settings: Settings, files: ValidationFiles, probes: Probes) -> TableReport:
    """Check the table and write its accepted and its rejected rows."""
    limits = settings.validation.limits(table.name)
    table = table if limits.apply_judge else table.unjudged()
    answers, quarantine = files.captions / table.name, files.quarantine / table.name
    with join_answers(table, answers, files.pairs, quarantine) as joined:
        captions = [] if settings.validation.languages else joined.captions(_SAMPLE)
        probes = probes.used_for(captions)
        _require_reader(settings, table, limits, settings.validation.languages or tuple(detected(captions)))
        if settings.validation.check_scene_facts and table.about == "captions":
            joined.require_facts(files.pairs)
        rules = row_rules(table, limits, read_sidecar(files.encoder).context_length)
        checker = _Checker(table, limits, rules, probes, Suites())
        accepted = files.project / settings.validation.file(table.name)
        sample = checker.run(joined, accepted, quarantine / REJECTED, settings.validation.shard_rows)
    shares = pd.DataFrame([checker.tally.shares()]).assign(row=0)
    result = checker.suites.check_shares(f"{table.name}_shares", shares, share_rules(limits))
    skipped = _skipped(table, answers)
    return TableReport(table.name, checker.tally, result, skipped, sample, rules, share_rules(limits))


def _require_reader(settings: Settings, table: Synthesised, limits: Limits, languages: Sequence[str]) -> None:
    """Print that nothing compares the meaning of answers in other languages than English, where that is so."""
    block, tasks = settings.validation, settings.synthesize.tasks
    others = ", ".join(language_name(code) for code in languages if code != ENGLISH)
    compared = [answer.task for answer in table.answers if answer.is_whole]
    asked = {name for name in tasks if tasks[name].judge_llm} | {name for name in compared if find_task(name).judges}
    unjudged = [name for name in compared if name not in asked]
    if not others or not unjudged or block.similarity_model or limits.filters is not True:
        return
    fault = f"{table.name}: nothing compares the meaning of answers in {others}: MiniLM reads English"
    if not block.accept_unchecked:
        judges = " and ".join(
            f"synthesize.tasks.{name}.judge_llm" for name in unjudged if find_task(name).keeps_meaning
        )
        raise InputError(
            f"{fault}: set {f'{judges} to a model that judges, or ' if judges else ''}validate.similarity_model to a "
            "multilingual model, or validate.accept_unchecked: true"
        )
    print(fault)


def _skipped(table: Synthesised, folder: Path) -> dict[str, dict[str, int]]:
    """Number of rows without a question, by task and reason, as counted by stage `synthesize`."""
    counts = {}
    for answer in table.answers:
        metadata = pq.read_metadata(folder / f"{answer.task}.parquet").metadata or {}
        counts[answer.task] = json.loads(metadata.get(SKIPPED.encode(), b"{}"))
    return counts


class _Checker:
    """Checks one table shard by shard; memory holds one shard and the counts of the others."""

    def __init__(self, table: Synthesised, limits: Limits, rules: list[Rule], probes: Probes, suites: Suites) -> None:
        self.suites, self.tally = suites, Tally()
        self._table, self._limits, self._rules, self._probes = table, limits, rules, probes

    def run(self, joined: JoinedAnswers, accepted: Path, quarantine: Path, shard_rows: int) -> pd.DataFrame:
        """Write the rows that keep the rules to `accepted` and the others, with reasons, to `quarantine`, in order.

        Returns a uniform sample of the rows, with the columns of the rules.
        """
        sampled, repeated, samples = sample_rows(joined.rows), joined.repeated(), []
        constant = joined.constant(self._limits.max_same_share)
        with (
            _writer(self._table.table, accepted) as keep,
            _writer(quarantine_of(self._table.table), quarantine) as reject,
            bar(self._table.name, joined.rows, "row") as progress,
        ):
            for shard in joined.shards(shard_rows):
                frame = add_columns(shard, self._table, self._limits, self._probes, repeated, constant)
                self._judge(frame, keep, reject)
                samples.append(frame.loc[frame["row"].isin(sampled), ["row", *(rule.column for rule in self._rules)]])
                progress.update(len(frame))
        return pd.concat(samples)

    def _judge(self, frame: pd.DataFrame, keep: _Write, reject: _Write) -> None:
        """Write the rows of a shard to their files and count them."""
        name, tally = self._table.name, self.tally
        result = self.suites.check_rows(f"{name}_answers", frame, self._rules)
        failing = frame["row"].isin(list(result.failures))
        accepted, rejected = frame[~failing], frame[failing]
        differences = {"other_id", "difference"} <= set(self._table.table.schema.names)
        keep(with_other_order(accepted) if differences and self._limits.both_orders else accepted)
        reject(rejected.assign(reason=[";".join(result.failures[row]) for row in rejected["row"]]))
        tally.rows += len(frame)
        tally.shards += 1
        tally.add_suite(result)
        tally.reasons.update(reason for reasons in result.failures.values() for reason in reasons)
        tally.marked["accepted"] += len(accepted)
        for mark in ("echo", "leak"):
            columns = [column for answer in self._table.answers if (column := measured(mark, answer)) in frame]
            tally.marked[mark] += int(frame[columns].notna().any(axis=1).sum())
        texts = self._table.texts
        for row, pair, sample, *values in rejected[["row", "id", "sample", *texts]].itertuples(index=False, name=None):
            shown = {column: text for column, text in zip(texts, values, strict=True) if text is not None}
            tally.add_rejected(RejectedRow(row, pair, sample, shown, tuple(result.failures[row])))


def with_other_order(rows: pd.DataFrame) -> pd.DataFrame:
    """A table of PC-CLIP's differences with another row after each: the pictures and the two ordinals are exchanged.

    Only texts that have "first" once and "second" once are exchanged. Language models nearly always name the first
    picture first, and a text tower that is trained on those sentences alone learns the order of the words.
    """
    chosen = rows[rows["difference"].map(_has_both_once).astype(bool)]
    columns = {name: f"other_{name}" for name in ("id", "caption")}
    exchanged = chosen.rename(columns=columns | {other: name for name, other in columns.items()})
    exchanged["difference"] = chosen["difference"].map(exchange_ordinals)
    # One after the other, so that the order of the rows does not depend on the shards.
    return pd.concat([rows, exchanged]).sort_index(kind="stable")


def exchange_ordinals(text: str) -> str:
    """`text` with "first" in the place of "second" and the reverse, in the same case.

    >>> exchange_ordinals("First a dog, the second a cat.")
    'Second a dog, the first a cat.'
    """
    return ORDINAL.sub(_other, text)


def _has_both_once(text: str) -> bool:
    return sorted(word.lower() for word in ORDINAL.findall(text)) == ["first", "second"]


def _other(match: re.Match[str]) -> str:
    word = "second" if match[0].lower() == "first" else "first"
    return word.capitalize() if match[0][0].isupper() else word


@contextmanager
def _writer(table: Table, path: Path) -> Iterator[_Write]:
    """Write frames to a table; all its row groups have one size, so that the file does not depend on the shards."""
    with table.writer(path) as append:
        held = table.schema.empty_table()

        def write(frame: pd.DataFrame) -> None:
            nonlocal held
            # A similarity that is not measured has no column, and is null.
            columns = frame.reindex(columns=table.schema.names)
            more = pa.Table.from_pandas(columns, schema=table.schema, preserve_index=False).replace_schema_metadata()
            held = pa.concat_tables([held, more])
            while held.num_rows >= _ROW_GROUP:
                append(held.slice(0, _ROW_GROUP).combine_chunks())
                held = held.slice(_ROW_GROUP)

        yield write
        append(held.combine_chunks())


def main(table: Annotated[str, typer.Option(help="A key of validate.tables.")]) -> None:
    """Check the texts that language models wrote for a table.

    Example: python -m components.captions.validation.validate --table paraphrases
    """
    run_in_project(lambda: run_tracked(load_checked(entries=()), table))


if __name__ == "__main__":
    start(main)
