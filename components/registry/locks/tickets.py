"""A lock for a registry behind a server: versions of a model of its own are drawn as numbered tickets.

The store gives each number once and in order, so of two processes the one with the lower ticket goes ahead, whatever
the store is. A ticket does not go with its process; one that is older than `LEASE` counts no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from components.core.errors import InputError
from components.registry.locks.lock import Asked, BusyError, Lock
from components.tracking import shown_address

LEASE = 30 * 60
"""Seconds that a ticket is good for; registering the largest encoder takes a few minutes."""
_HOLDER = "holder"


@contextmanager
def take(asked: Asked) -> Iterator[Lock]:
    """See `held`."""
    from mlflow.exceptions import MlflowException

    client, model, tickets = asked.client, asked.model, f"{asked.model}.promotions"
    try:
        mine = _draw(asked, tickets)
    except MlflowException as error:
        raise InputError(
            f"{shown_address(asked.uri)} gives no ticket ({error.message}): check MLFLOW_TRACKING_URI and your rights"
        ) from None
    try:
        _go_ahead(client, tickets, mine, model)
        yield Lock(confirm=lambda: _go_ahead(client, tickets, mine, model))
    finally:
        _give_back(client, tickets, mine)


def _draw(asked: Asked, tickets: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        asked.client.create_registered_model(tickets, description="Who may move the aliases; empty while nobody does.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    # A version must have a source that the server allows; nobody opens it.
    source = asked.client.get_run(asked.run_id).info.artifact_uri
    tags = {_HOLDER: asked.who}
    return asked.client.create_model_version(tickets, source, asked.run_id, tags=tags, await_creation_for=0)


def _go_ahead(client: Any, tickets: str, mine: Any, model: str) -> None:
    """Nobody with a lower number is left, and mine still counts.

    Raises:
        BusyError: somebody has a lower number.
        InputError: mine was taken away.
    """
    waiting = {int(ticket.version): ticket for ticket in client.search_model_versions(f"name = '{tickets}'")}
    number = int(mine.version)
    if number not in waiting:
        raise InputError(f"ticket {number} of {tickets} was taken away after {LEASE} s: run the command again")
    for ahead in sorted(waiting):
        if ahead >= number:
            return
        # Both times are the store's, so the clocks of the hosts do not matter.
        age = (mine.creation_timestamp - waiting[ahead].creation_timestamp) / 1000
        if age < LEASE:
            raise BusyError(model, waiting[ahead].tags.get(_HOLDER, "another process"))
        _give_back(client, tickets, waiting[ahead])


def _give_back(client: Any, tickets: str, ticket: Any) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.delete_model_version(tickets, ticket.version)
    except MlflowException:
        # Gone already, or out of reach: then its lease ends.
        return
