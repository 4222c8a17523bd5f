"""The candidates for promotion, best first by the primary metric."""

from __future__ import annotations

import math

from components.core.errors import InputError
from components.core.settings import Settings
from components.evaluation.results import Report, read_report
from components.registry.folders import BASE, Folders
from components.registry.gate import metric


def candidates(settings: Settings, folders: Folders) -> list[Report]:
    """The results of all encoders but base, the best on the primary metric first, the earlier listed of equals.

    Raises:
        InputError: no other encoder is listed, or one has no results.
    """
    reports = [read_report(name, folders.metrics) for name in settings.encoders if name != BASE]
    if not reports:
        raise InputError("params.yaml: encoders lists no encoder but base: add one to have a candidate")

    def merit(report: Report) -> float:
        result = metric(report, settings.promote.primary, "promote.primary")
        value = result.value if result.higher_is_better else -result.value
        return -math.inf if math.isnan(value) else value

    return sorted(reports, key=merit, reverse=True)
