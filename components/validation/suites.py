"""Great Expectations over the derived columns: suites in code, an ephemeral context, nothing written but the docs."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from components.errors import InputError
from components.files import atomic_folder
from components.validation.rules import Rule

_RESULT_FORMAT = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": ["row"],
    "return_unexpected_index_query": False,
}


@dataclass(frozen=True)
class SuiteResult:
    """What one suite found: the reasons of every failing row, and each expectation with its outcome."""

    name: str
    success: bool
    failures: dict[int, list[str]]
    expectations: list[dict[str, Any]]


class Suites:
    """Runs suites in one ephemeral context, so that one set of Data Docs shows them all."""

    def __init__(self) -> None:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        import great_expectations as gx
        from great_expectations.data_context.types import base

        self._gx: Any = gx
        # The default configuration leaves a folder behind in the system's temporary folder.
        config = base.DataContextConfig(
            store_backend_defaults=base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
            progress_bars=base.ProgressBarsConfig(globally=False),
        )
        self._context: Any = gx.get_context(mode="ephemeral", project_config=config)

    def check_rows(self, name: str, frame: pd.DataFrame, rules: list[Rule]) -> SuiteResult:
        """Expect every row of `frame` (with its number in column `row`) to fulfil every rule."""
        return self._check(name, frame, rules, self._row_expectation)

    def check_shares(self, name: str, frame: pd.DataFrame, rules: list[Rule]) -> SuiteResult:
        """Expect the means of `frame`'s columns to stay within the rules' limits."""
        return self._check(name, frame, rules, self._share_expectation)

    def write_docs(self, folder: Path) -> None:
        """Render Data Docs of every suite run so far to `folder`, `index.html` first; whole or not at all."""
        with atomic_folder(folder) as temporary:
            self._context.add_data_docs_site(
                "captions",
                {
                    "class_name": "SiteBuilder",
                    "show_how_to_buttons": False,
                    "store_backend": {
                        "class_name": "TupleFilesystemStoreBackend",
                        "base_directory": str(temporary.resolve()),
                    },
                    "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
                },
            )
            self._context.build_data_docs()

    def _check(
        self, name: str, frame: pd.DataFrame, rules: list[Rule], expectation: Callable[[Rule], Any]
    ) -> SuiteResult:
        gx, context = self._gx, self._context
        batches = (
            context.data_sources.add_pandas(name)
            .add_dataframe_asset(name)
            .add_batch_definition_whole_dataframe("all rows")
        )
        suite = context.suites.add(gx.ExpectationSuite(name, expectations=[expectation(rule) for rule in rules]))
        definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batches, suite=suite))
        checkpoint = context.checkpoints.add(
            gx.Checkpoint(name=name, validation_definitions=[definition], result_format=_RESULT_FORMAT)
        )
        result = checkpoint.run(batch_parameters={"dataframe": frame})
        (validation,) = result.run_results.values()
        return _read(name, validation, {rule.column: rule for rule in rules})

    def _row_expectation(self, rule: Rule) -> Any:
        kinds, meta = self._gx.expectations, {"reason": rule.reason}
        if rule.low is None and rule.high is None:
            return kinds.ExpectColumnValuesToBeNull(column=rule.column, meta=meta)
        return kinds.ExpectColumnValuesToBeBetween(
            column=rule.column, min_value=rule.low, max_value=rule.high, meta=meta
        )

    def _share_expectation(self, rule: Rule) -> Any:
        return self._gx.expectations.ExpectColumnMeanToBeBetween(
            column=rule.column, min_value=rule.low, max_value=rule.high, meta={"reason": rule.reason}
        )


def _read(name: str, validation: Any, rules: dict[str, Rule]) -> SuiteResult:
    failures: dict[int, list[str]] = defaultdict(list)
    expectations = []
    for result in validation.results:
        config = result.expectation_config
        column, reason = config.kwargs["column"], config.meta["reason"]
        if result.exception_info.get("raised_exception"):
            raise InputError(f"expectation '{reason}' cannot run: {result.exception_info['exception_message']}")
        for row in result.result.get("unexpected_index_list") or []:
            failures[int(row["row"])].append(rules[column].explain(row[column]))
        outcome = {"suite": name, "expectation": config.type, "column": column, "reason": reason}
        observed = result.result.get("observed_value", result.result.get("unexpected_count"))
        measure = "observed" if "observed_value" in result.result else "failing_rows"
        expectations.append(outcome | {"success": bool(result.success), measure: observed})
    return SuiteResult(name, bool(validation.success), dict(failures), expectations)
