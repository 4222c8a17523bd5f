"""The contract of a check: what it is given and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.core.errors import InputError
from components.core.settings import Settings

Status = Literal["ok", "warn", "fail", "not used"]
SECONDS = 5.0
"""What one request may take."""


@dataclass(frozen=True)
class Finding:
    """What a check found; `fix` says what to do where something is wrong."""

    status: Status
    detail: str
    fix: str = ""


@dataclass(frozen=True)
class Surroundings:
    """What checks look at.

    Attributes:
        environment: the environment's variables.
        folder: the project's folder.
        loaded: params.yaml; None when it cannot be read.
        fault: why it cannot be read.
    """

    environment: Mapping[str, str]
    folder: Path
    loaded: Settings | None
    fault: str = ""

    @property
    def settings(self) -> Settings:
        """params.yaml.

        Raises:
            InputError: it cannot be read.
        """
        if self.loaded is None:
            raise InputError(self.fault)
        return self.loaded


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Attributes:
        title: how the table calls it.
        place: lines are sorted by it.
        examine: looks, and says what it found; an `InputError` is a failure whose message names the fix.
        needs_settings: whether there is nothing to look at while params.yaml cannot be read.
    """

    title: str
    place: int
    examine: Callable[[Surroundings], Finding]
    needs_settings: bool = False


def ok(detail: str) -> Finding:
    """Nothing to do."""
    return Finding("ok", detail)


def not_used(detail: str) -> Finding:
    """This installation does without it."""
    return Finding("not used", detail)


def warn(detail: str, fix: str) -> Finding:
    """It works, but not as well as it could."""
    return Finding("warn", detail, fix)


def fail(detail: str, fix: str) -> Finding:
    """Something that is asked for does not work."""
    return Finding("fail", detail, fix)
