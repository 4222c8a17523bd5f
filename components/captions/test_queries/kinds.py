"""The kinds of written test queries: their prompt tasks, judges, rules and benchmark tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from components.captions.validation.rules.general import KEPT, UNSEEN
from components.captions.validation.rules.table import Synthesised, TableAnswer
from components.captions.validation.rules.tables import added_terms, find_table
from components.core.tables.records import NEGATION_QUERIES, PARAPHRASE_QUERIES, QUERY_PARAPHRASES, SWAPS
from components.core.tables.table import Table
from components.core.tables.written_queries import WrittenQuery

TIER, HELD_OUT, KIND = "all", "image", "mixed"
"""Groups of the benchmark tables, which written queries do not have."""


@dataclass(frozen=True, eq=False)
class QueryKind:
    """One kind of test query.

    Attributes:
        task: the prompt task that writes it of a caption.
        judge: the prompt task that judges it; `judged` is the name of its input.
        rules: the checks of an answer, as stage `validate` makes them.
        limits: limits that differ from those of `validate`.
        rows: rows of the benchmark's table from all accepted queries.
        file: name of that table.
        second_file: its name where the data set has a table `file` of its own; without one no queries are written then.
    """

    name: str
    task: str
    judge: str
    judged: str
    rules: Synthesised
    table: Table
    file: str
    rows: Callable[[Sequence[WrittenQuery]], list[tuple[str, ...]]]
    limits: Mapping[str, Any] = field(default_factory=dict)
    second_file: str | None = None

    @property
    def column(self) -> str:
        """The column of the answer in a frame of its rules."""
        return self.rules.answers[0].column

    def benchmark_rows(self, queries: Sequence[WrittenQuery]) -> pa.Table:
        """The benchmark's table."""
        columns = list(zip(*self.rows(queries), strict=True)) or [()] * len(self.table.schema)
        return pa.table([list(column) for column in columns], schema=self.table.schema)


def _paraphrase_rows(queries: Sequence[WrittenQuery]) -> list[tuple[str, ...]]:
    return [(one.image_id, one.caption, one.query, TIER, HELD_OUT) for one in queries if one.kind == "paraphrase"]


def _negation_rows(queries: Sequence[WrittenQuery]) -> list[tuple[str, ...]]:
    """The negations of captions that have a paraphrase, the first one."""
    paraphrases: dict[tuple[str, str], str] = {}
    for one in queries:
        if one.kind == "paraphrase":
            paraphrases.setdefault((one.image_id, one.caption), one.query)
    return [
        (one.image_id, one.caption, one.query, paraphrases[one.image_id, one.caption], _cue(one), TIER)
        for one in queries
        if one.kind == "negation" and (one.image_id, one.caption) in paraphrases
    ]


def _cue(negation: WrittenQuery) -> str:
    return next(iter(added_terms(negation.query, negation.caption)), "other")


def _swap_rows(queries: Sequence[WrittenQuery]) -> list[tuple[str, ...]]:
    return [(one.image_id, one.caption, one.query, KIND, KIND) for one in queries if one.kind == "swap"]


def _unseen(name: str) -> Synthesised:
    """The rules of a training table for texts that are never trained on: evaluation texts are allowed."""
    table = find_table(name)
    answers = (
        replace(answer, checks=tuple(check for check in answer.checks if check.column != "leak"))
        for answer in table.answers
    )
    return replace(table, answers=tuple(answers))


_PARAPHRASES = Synthesised(QUERY_PARAPHRASES, (TableAnswer("paraphrase", "type_query", (*UNSEEN, *KEPT)),))
KINDS = (
    # People type queries of two words, and leave details out.
    QueryKind("paraphrase", "type_query", "judge_paraphrase", "paraphrase", _PARAPHRASES, PARAPHRASE_QUERIES,
              "paraphrase_queries.parquet", _paraphrase_rows, {"min_words": 2, "keep_details": False},
              "written_paraphrases.parquet"),
    QueryKind("negation", "negate_terms", "judge_negation", "negation", _unseen("negated_terms"), NEGATION_QUERIES,
              "negations.parquet", _negation_rows),
    # A swap has the caption's own words.
    QueryKind("swap", "swap_negative", "judge_negation", "negation", _unseen("hard_negatives"), SWAPS,
              "swaps.parquet", _swap_rows, {"min_overlap": 1.0}),
)  # fmt: skip


def written_files(evaluation: Path) -> dict[QueryKind, str]:
    """The kinds that a model writes, each with the name of its benchmark's table; `evaluation` has the data's own."""
    names = {kind: kind.second_file if (evaluation / kind.file).exists() else kind.file for kind in KINDS}
    return {kind: name for kind, name in names.items() if name is not None}
