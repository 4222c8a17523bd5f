"""What is measured of every answer; the suites only set limits to these columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from components.captions.tasks import find_task
from components.validation.probes import Probes
from components.validation.table import Answer, Synthesised, View
from components.validation.words import normalised


def measured(name: str, answer: Answer) -> str:
    """The column that holds what the check with column `name` measures of an answer."""
    return f"{name}{answer.suffix}"


def add_columns(joined: pd.DataFrame, table: Synthesised, probes: Probes) -> pd.DataFrame:
    """`joined` with a column for every check of every answer, null where the answer is missing, and `duplicate`.

    A check's column holds numbers, or texts that name a fault and null where there is none.
    """
    derived: dict[str, pd.Series[Any]] = {}
    for answer in table.answers:
        present = joined[joined[answer.source].notna() & joined[answer.column].notna()]
        texts, sources = present[answer.column].tolist(), present[answer.source].tolist()
        view = View(texts, sources, present, find_task(answer.task), probes)
        for check in answer.checks:
            kind = np.float64 if check.is_number else object
            values = pd.Series(check.measure(view), index=present.index, dtype=kind)
            derived[measured(check.column, answer)] = values.reindex(joined.index)
    derived["duplicate"] = _duplicates(joined, table)
    return joined.assign(**{name: _nullable(column) for name, column in derived.items()})


def _duplicates(joined: pd.DataFrame, table: Synthesised) -> pd.Series[Any]:
    """`sample` for every row but the first whose answers all say what another sample of the same pair says."""
    names = [answer.column for answer in table.answers]
    whole = joined[joined[names].notna().all(axis=1)]
    keys = pd.DataFrame({name: whole[name].map(normalised) for name in names})
    repeated = keys.assign(id=whole["id"]).duplicated()
    return pd.Series("sample", index=whole.index[repeated], dtype=object).reindex(joined.index)


def _nullable(column: pd.Series[Any]) -> pd.Series[Any]:
    return column if column.dtype == np.float64 else column.astype(object).where(column.notna(), None)
