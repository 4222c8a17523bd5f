"""What the kinds of lock have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from components.core.errors import InputError


class BusyError(InputError):
    """Another process has the lock."""

    def __init__(self, model: str, holder: str) -> None:
        super().__init__(f"{model} is being changed by {holder}: run the command again when that has ended")


@dataclass(frozen=True)
class Asked:
    """Which lock is wanted, by whom."""

    uri: str
    model: str
    who: str


@dataclass(frozen=True)
class Lock:
    """A lock that this process has.

    Attributes:
        confirm: raises `InputError` when it was lost, the database restarted say; to be asked before what cannot be
            undone.
    """

    confirm: Callable[[], None]
