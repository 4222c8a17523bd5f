"""Great Expectations over the derived columns: suites in code, an ephemeral context, nothing kept or written."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from components.captions.validation.rules.table import Rule
from components.core.system.errors import InputError


@dataclass(frozen=True)
class SuiteResult:
    """The result of one suite: the reasons of every failing row, and each expectation with its outcome."""

    name: str
    success: bool
    failures: dict[int, list[str]]
    expectations: list[dict[str, Any]]


class Suites:
    """Runs suites in one ephemeral context, which remembers no result: memory does not grow with the runs."""

    def __init__(self) -> None:
        assets = make_context().data_sources.add_pandas("frames").add_dataframe_asset("frame")
        self._definition = assets.add_batch_definition_whole_dataframe("all rows")

    def check_rows(self, name: str, frame: pd.DataFrame, rules: list[Rule]) -> SuiteResult:
        """Expect every row of `frame` (with its number in column `row`) to fulfil every rule."""
        return self._check(name, frame, rules, row_expectation)

    def check_shares(self, name: str, frame: pd.DataFrame, rules: list[Rule]) -> SuiteResult:
        """Expect the means of `frame`'s columns to stay within the rules' limits."""
        return self._check(name, frame, rules, share_expectation)

    def _check(
        self, name: str, frame: pd.DataFrame, rules: list[Rule], expectation: Callable[[Rule], Any]
    ) -> SuiteResult:
        import great_expectations as gx

        suite = gx.ExpectationSuite(name, expectations=[expectation(rule) for rule in rules])
        columns = frame[[rule.column for rule in rules]].set_axis(frame["row"].to_numpy())
        batch = self._definition.get_batch(batch_parameters={"dataframe": columns})
        # Without named columns the rows are known by the frame's index, which is several times as fast.
        result = batch.validate(
            suite, result_format={"result_format": "COMPLETE", "return_unexpected_index_query": False}
        )
        return _read(name, result, rules, frame)


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
    """A condition on every row, as an expectation."""
    import great_expectations.expectations as kinds

    meta = {"reason": rule.reason}
    if rule.names_faults:
        return kinds.ExpectColumnValuesToBeNull(column=rule.column, meta=meta)
    return kinds.ExpectColumnValuesToBeBetween(column=rule.column, min_value=rule.low, max_value=rule.high, meta=meta)


def share_expectation(rule: Rule) -> Any:
    """A condition on a column's mean, as an expectation."""
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
        failing = sorted(int(row) for row in result.result.get("unexpected_index_list") or [])
        assert len(failing) == counted.get("failing_rows", 0), "a suite must name every failing row"
        for row, value in zip(failing, columns[rule.column].loc[failing], strict=True):
            failures[row].append(rule.explain(value))
        kind = result.expectation_config.type
        outcome = {"suite": name, "expectation": kind, "column": rule.column, "reason": rule.reason}
        expectations.append(outcome | {"success": bool(result.success), **counted})
    return SuiteResult(name, bool(validation.success), dict(failures), expectations)
