"""The candidates for promotion, best first by the primary metric."""

from __future__ import annotations

import math

from components.core.errors import InputError
from components.core.settings import Settings
from components.evaluation.results import Report, read_report
from components.registry.decision import Rule
from components.registry.folders import BASE, Folders
from components.registry.gate import metric


def candidates(settings: Settings, folders: Folders) -> tuple[list[Report], tuple[Rule, ...]]:
    """The results of all encoders but base, the best on the primary metric first, the earlier listed of equals.

    Also returns the encoders without results, each with the reason. DVC removes an encoder's results while stage
    `evaluate` scores it again, which must not keep the others from being judged.

    Raises:
        InputError: no other encoder is listed, none has results, or a results file is damaged.
    """
    names = [name for name in settings.encoders if name != BASE]
    if not names:
        raise InputError("params.yaml: encoders lists no encoder but base: add one to have a candidate")
    scored = [name for name in names if (folders.metrics / f"{name}.json").exists()]
    reports = [read_report(name, folders.metrics) for name in scored or names]
    missing = tuple(
        Rule(name=name, passed=False, reason=f"it has no results: run `dvc repro evaluate@{name}`")
        for name in names
        if name not in scored
    )

    def merit(report: Report) -> float:
        result = metric(report, settings.promote.primary, "promote.primary")
        value = result.value if result.higher_is_better else -result.value
        return -math.inf if math.isnan(value) else value

    return sorted(reports, key=merit, reverse=True), missing
