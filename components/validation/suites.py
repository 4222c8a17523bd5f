"""Great Expectations over the derived columns: suites in code, an ephemeral context, nothing kept or written."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from components.core.errors import InputError
from components.validation.rules import Rule


@dataclass(frozen=True)
class SuiteResult:
    """What one suite found: the reasons of every failing row, and each expectation with its outcome."""

    name: str
    success: bool
    failures: dict[int, list[str]]
    expectations: list[dict[str, Any]]


class Frames(Protocol):
    """Makes batches of frames, in memory or in a database."""

    def result_format(self, rows: int) -> dict[str, Any]:
        """What to ask of a suite over so many rows, so that it names every failing one."""
        ...

    def batch(self, frame: pd.DataFrame, rules: list[Rule]) -> AbstractContextManager[Any]:
        """A batch of the columns that the rules look at; it is gone when the block ends."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Suites:
    """Runs suites in one ephemeral context, which remembers no result: memory does not grow with the runs."""

    def __init__(self, database: str | None = None) -> None:
        """Run suites with pandas, or inside a database.

        Raises:
            InputError: the database cannot be reached.
        """
        from components.validation.database import DatabaseFrames

        context = make_context()
        self._frames: Frames = PandasFrames(context) if database is None else DatabaseFrames(context, database)

    def check_rows(self, name: str, frame: pd.DataFrame, rules: list[Rule]) -> SuiteResult:
        """Expect every row of `frame` (with its number in column `row`) to fulfil every rule."""
        return self._check(name, frame, rules, row_expectation)

    def check_shares(self, name: str, frame: pd.DataFrame, rules: list[Rule]) -> SuiteResult:
        """Expect the means of `frame`'s columns to stay within the rules' limits."""
        return self._check(name, frame, rules, share_expectation)

    def close(self) -> None:
        """Give connections back."""
        self._frames.close()

    def _check(
        self, name: str, frame: pd.DataFrame, rules: list[Rule], expectation: Callable[[Rule], Any]
    ) -> SuiteResult:
        import great_expectations as gx

        suite = gx.ExpectationSuite(name, expectations=[expectation(rule) for rule in rules])
        with self._frames.batch(frame, rules) as batch:
            result = batch.validate(suite, result_format=self._frames.result_format(len(frame)))
        return _read(name, result, rules, frame)


class PandasFrames:
    """Batches of frames as they are."""

    def __init__(self, context: Any) -> None:
        assets = context.data_sources.add_pandas("frames").add_dataframe_asset("frame")
        self._definition = assets.add_batch_definition_whole_dataframe("all rows")

    def result_format(self, _rows: int) -> dict[str, Any]:
        """Without named columns the rows are known by the frame's index, which is several times as fast."""
        return {"result_format": "COMPLETE", "return_unexpected_index_query": False}

    @contextmanager
    def batch(self, frame: pd.DataFrame, rules: list[Rule]) -> Iterator[Any]:
        """The frame's own columns; rows are known by their numbers."""
        columns = frame[[rule.column for rule in rules]].set_axis(frame["row"].to_numpy())
        yield self._definition.get_batch(batch_parameters={"dataframe": columns})

    def close(self) -> None:
        """Nothing is held."""


def make_context() -> Any:
    """An ephemeral context that reports nothing to anybody and writes nothing."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types import base

    # The default configuration leaves a folder behind in the system's temporary folder.
    config = base.DataContextConfig(
        store_backend_defaults=base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=base.ProgressBarsConfig(globally=False),
    )
    return gx.get_context(mode="ephemeral", project_config=config)


def row_expectation(rule: Rule) -> Any:
    """What every row must fulfil, as an expectation."""
    import great_expectations.expectations as kinds

    meta = {"reason": rule.reason}
    if rule.names_faults:
        return kinds.ExpectColumnValuesToBeNull(column=rule.column, meta=meta)
    return kinds.ExpectColumnValuesToBeBetween(column=rule.column, min_value=rule.low, max_value=rule.high, meta=meta)


def share_expectation(rule: Rule) -> Any:
    """What a column's mean must fulfil, as an expectation."""
    import great_expectations.expectations as kinds

    return kinds.ExpectColumnMeanToBeBetween(
        column=rule.column, min_value=rule.low, max_value=rule.high, meta={"reason": rule.reason}
    )


def _read(name: str, validation: Any, rules: list[Rule], frame: pd.DataFrame) -> SuiteResult:
    failures: dict[int, list[str]] = defaultdict(list)
    expectations = []
    columns = frame.set_index("row")
    results = {result.expectation_config.kwargs["column"]: result for result in validation.results}
    for rule in rules:
        result = results[rule.column]
        if result.exception_info.get("raised_exception"):
            raise InputError(f"expectation '{rule.reason}' cannot run: {result.exception_info['exception_message']}")
        counted: dict[str, float]
        if "observed_value" in result.result:
            counted = {"observed": float(result.result["observed_value"])}
        else:
            counted = {"failing_rows": int(result.result["unexpected_count"] or 0)}
        failing = _failing(result.result)
        assert len(failing) == counted.get("failing_rows", 0), "a suite must name every failing row"
        for row, value in zip(failing, columns[rule.column].loc[failing], strict=True):
            failures[row].append(rule.explain(value))
        kind = result.expectation_config.type
        outcome = {"suite": name, "expectation": kind, "column": rule.column, "reason": rule.reason}
        expectations.append(outcome | {"success": bool(result.success), **counted})
    return SuiteResult(name, bool(validation.success), dict(failures), expectations)


def _failing(result: dict[str, Any]) -> list[int]:
    """Numbers of the failing rows; their values are not all in the result."""
    rows = result.get("unexpected_index_list") or []
    return sorted(int(row["row"] if isinstance(row, dict) else row) for row in rows)
