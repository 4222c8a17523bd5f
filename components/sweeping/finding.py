"""The record of one thing that a sweep found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What was found, and what was done about it.

    Attributes:
        place: where, such as `MLflow`.
        subject: what, such as a run's name and id.
        reason: how it is known that its owner is dead, or what is wrong.
        done: what was done; in a dry run, what would be.
    """

    place: str
    subject: str
    reason: str
    done: str
