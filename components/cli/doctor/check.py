"""The input and the result of a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.core.settings import Settings
from components.core.system.errors import InputError

TIMEOUT_S = 5.0
"""Time limit of one request."""


class NoSettingsError(InputError):
    """params.yaml cannot be read."""


@dataclass(frozen=True)
class CheckResult:
    """The result of the check with the title `check`; `fix` is the instruction if something is wrong."""

    status: Literal["ok", "warn", "fail", "not used"]
    detail: str
    fix: str = ""
    check: str = ""


@dataclass(frozen=True)
class Installation:
    """The input of all checks.

    Attributes:
        loaded: params.yaml; None if it cannot be read.
    """

    environment: Mapping[str, str]
    folder: Path
    loaded: Settings | None
    fault: str = ""

    @property
    def settings(self) -> Settings:
        """params.yaml; raises `NoSettingsError` if it cannot be read."""
        if self.loaded is None:
            raise NoSettingsError(self.fault)
        return self.loaded


CheckFunction = Callable[[Installation], CheckResult]
"""A check; an `InputError` is a failure, and the end of its message is the fix."""


def ok(detail: str) -> CheckResult:
    """Nothing to do."""
    return CheckResult("ok", detail)


def not_used(detail: str) -> CheckResult:
    """This installation does not use it."""
    return CheckResult("not used", detail)


def warn(detail: str, fix: str) -> CheckResult:
    """It works with a limitation."""
    return CheckResult("warn", detail, fix)


def fail(detail: str, fix: str) -> CheckResult:
    """It is required and does not work."""
    return CheckResult("fail", detail, fix)
