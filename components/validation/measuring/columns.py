"""What is measured of every answer; the suites only set limits to these columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from components.captions.tasks import find_task
from components.core.settings import Limits
from components.validation.measuring.probes import Probes
from components.validation.repeats import Rows
from components.validation.table import Answer, Synthesised, View


def measured(name: str, answer: Answer) -> str:
    """The column that holds what the check with column `name` measures of an answer."""
    return f"{name}{answer.suffix}"


def add_columns(
    joined: pd.DataFrame, table: Synthesised, limits: Limits, probes: Probes, repeated: Rows
) -> pd.DataFrame:
    """`joined` with a column for every check of every answer that the limits leave on, null where there is no answer.

    A check's column holds numbers, or texts that name a fault and null where there is none. So does `duplicate`, of the
    rows that are `repeated`: they say what an earlier sample of their pair says.
    """
    derived: dict[str, pd.Series[Any]] = {}
    for answer in table.answers:
        present = joined[joined[answer.source].notna() & joined[answer.column].notna()]
        texts, sources = present[answer.column].tolist(), present[answer.source].tolist()
        view = View(texts, sources, present, find_task(answer.task), probes)
        for check in (check for check in answer.checks if check.applies(limits)):
            kind = np.float64 if check.is_number else object
            values = pd.Series(check.measure(view), index=present.index, dtype=kind)
            derived[measured(check.column, answer)] = values.reindex(joined.index)
    sample = pd.Series("sample", index=joined.index, dtype=object)
    derived["duplicate"] = sample.where(joined["row"].isin(repeated))
    return joined.assign(**{name: _nullable(column) for name, column in derived.items()})


def _nullable(column: pd.Series[Any]) -> pd.Series[Any]:
    return column if column.dtype == np.float64 else column.astype(object).where(column.notna(), None)
