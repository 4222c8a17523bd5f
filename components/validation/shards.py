"""One synthesised table, checked shard by shard: memory holds one shard, and what is counted of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from components.core.progress import bar
from components.core.records import quarantine_of
from components.core.settings import Limits
from components.core.table import Table
from components.validation.joining.answers import Joined
from components.validation.measuring.probes import Probes
from components.validation.reporting.quality import Quality
from components.validation.reporting.report import Example, Tally, sample_rows
from components.validation.rules import Rule, add_columns, measured
from components.validation.suites import SuiteResult, Suites
from components.validation.table import Synthesised

_ROW_GROUP = 50_000
Write = Callable[[pd.DataFrame], None]


@dataclass(frozen=True)
class Checked:
    """A table whose rows were all checked and written.

    Attributes:
        tally: what was counted.
        sample: a uniform sample of the rows, with what the rules look at.
        quality: the captions' histograms.
    """

    tally: Tally
    sample: pd.DataFrame
    quality: Quality


@dataclass(frozen=True)
class TableCheck:
    """How one table is checked.

    Attributes:
        table: which.
        limits: the limits of its checks.
        rules: what every row must fulfil.
        probes: what measuring needs from outside.
        suites: runs the rules.
        shard_rows: rows that are held at once.
    """

    table: Synthesised
    limits: Limits
    rules: list[Rule]
    probes: Probes
    suites: Suites
    shard_rows: int

    def run(self, joined: Joined, accepted: Path, quarantine: Path) -> Checked:
        """Write the rows that fulfil the rules to `accepted` and the others to `quarantine`, with reasons, in order."""
        wanted, tally, quality, samples = sample_rows(joined.rows), Tally(), Quality(self.table.name), []
        repeated = joined.repeated()
        with (
            _writer(self.table.table, accepted) as keep,
            _writer(quarantine_of(self.table.table), quarantine) as reject,
            bar(self.table.name, joined.rows, "row") as progress,
        ):
            for shard in joined.shards(self.shard_rows):
                frame = add_columns(shard, self.table, self.limits, self.probes, repeated)
                failing = self._judge(frame, tally, keep, reject)
                samples.append(frame.loc[frame["row"].isin(wanted), ["row", *(rule.column for rule in self.rules)]])
                self._look_at(frame, ~failing, quality)
                progress.update(len(frame))
        return Checked(tally, pd.concat(samples), quality)

    def _judge(self, frame: pd.DataFrame, tally: Tally, keep: Write, reject: Write) -> pd.Series[bool]:
        """Write a shard's rows to where they belong and count them; returns which fail."""
        name = self.table.name
        found = self.suites.check_rows(f"{name}_answers", frame, self.rules)
        failing = frame["row"].isin(list(found.failures))
        accepted, rejected = frame[~failing], frame[failing]
        keep(accepted)
        reject(rejected.assign(reason=[";".join(found.failures[row]) for row in rejected["row"]]))
        tally.rows += len(frame)
        tally.shards += 1
        tally.answers.add(found)
        tally.kept.add(self.suites.check_rows(f"{name}_accepted", accepted, self.rules))
        tally.reasons.update(reason for reasons in found.failures.values() for reason in reasons)
        tally.marked.update(self._marks(frame, ~failing))
        tally.examples.add(self._examples(rejected, found))
        return failing

    def _marks(self, frame: pd.DataFrame, accepted: pd.Series[bool]) -> dict[str, int]:
        """How many rows are accepted, have an answer that echoes the prompt, have one that gives evaluation away."""
        marks = {"accepted": int(accepted.sum())}
        for name in ("echo", "leak"):
            columns = [column for answer in self.table.answers if (column := measured(name, answer)) in frame]
            marks[name] = int(frame[columns].notna().any(axis=1).sum())
        return marks

    def _examples(self, rejected: pd.DataFrame, found: SuiteResult) -> Iterator[Example]:
        texts = self.table.texts
        for row in rejected[["row", "id", "sample", *texts]].itertuples(index=False, name=None):
            number, identity, sample, *said = row
            shown = {name: text for name, text in zip(texts, said, strict=True) if text is not None}
            yield Example(number, identity, sample, shown, tuple(found.failures[number]))

    def _look_at(self, frame: pd.DataFrame, accepted: pd.Series[bool], quality: Quality) -> None:
        for answer in self.table.answers:
            present = frame[frame[answer.column].notna() & frame[answer.source].notna()]
            similarities = present.get(measured("similarity", answer), pd.Series(np.nan, index=present.index))
            texts, sources = present[answer.column].tolist(), present[answer.source].tolist()
            quality.add(texts, sources, similarities.tolist(), accepted[present.index].tolist())


@contextmanager
def _writer(table: Table, path: Path) -> Iterator[Write]:
    """Write frames to a table; its row groups are of one size, so that shards of any size make the same file."""
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
