"""What a worker has taken to ask: leases on questions, kept up while it lives and given back when it ends.

Own code beside `INSERT ... ON CONFLICT`, which keeps an answer from being stored twice: leases keep a question from
being paid for twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection, text

from components.core.errors import InputError
from components.core.worker_identity import is_gone, new_worker

if TYPE_CHECKING:
    from components.captions.store.database import Database

_SWEEP_EVERY_S = 1.0
_SHORT_S = 5.0
"""How long a worker that ends waits for a database that is away."""
_LONG_S = 86_400.0


class Claims:
    """A worker's claims on one store; made by `GenerationStore.claims`.

    A claim is a row with the end of its lease by the database's clock. A thread renews the leases three times as often
    as needed, so only a worker that is dead or cut off loses one. On its own host a dead worker is known by its
    process, and nobody waits for its leases.

    Attributes:
        worker: who claims, see `components.core.worker_identity`.
        ended: whether everything was given back.
    """

    def __init__(self, database: Database, lease_s: float) -> None:
        self.worker = new_worker()
        self.ended = False
        self._database, self._lease_s = database, lease_s
        self._held: set[str] = set()
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="claims", daemon=True)
        self._swept = 0.0

    def __enter__(self) -> Self:
        """Start renewing, and clear away what dead workers left."""
        self._sweep()
        self._database.write(self._forget)
        self._renewer.start()
        return self

    def take(self, keys: Iterable[str]) -> set[str]:
        """Claim questions; returns the keys that are this worker's from now on.

        Not among them: keys that have an answer, that another live worker holds, or that this one holds already.

        Raises:
            InputError: the database refuses or stays away.
        """
        with self._lock:
            wanted = sorted(set(keys) - self._held)
            taken = self._take(wanted)
            if len(taken) < len(wanted) and time.monotonic() - self._swept > _SWEEP_EVERY_S and self._sweep():
                taken |= self._take([key for key in wanted if key not in taken])
            self._held |= taken
            return taken

    def settle(self, keys: Iterable[str]) -> None:
        """Forget keys whose claims have ended with their replies."""
        with self._lock:
            self._held.difference_update(keys)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what is still held; where the database is away, the leases end by themselves."""
        self._end.set()
        self._renewer.join(_SHORT_S)
        self.ended = True
        if self._held:
            with suppress(InputError):
                self._database.write(self._give_back, retry_s=_SHORT_S)

    def _take(self, keys: list[str]) -> set[str]:
        if not keys:
            return set()
        dialect = self._database.dialect
        return self._database.write(lambda connection: dialect.take(connection, keys, self.worker, self._lease_s))

    def _renew(self) -> None:
        pause = self._lease_s / 3
        while not self._end.wait(pause):
            try:
                if self._held:
                    self._database.write(self._prolong, retry_s=0)
                pause = self._lease_s / 3
            except InputError:
                pause = min(_SHORT_S, self._lease_s) / 10

    def _prolong(self, connection: Connection) -> None:
        change = f"UPDATE claims SET lease_end = {self._database.dialect.now} + :lease"
        self._change(connection, change, "worker = :worker", {"lease": self._lease_s, "worker": self.worker})

    def _give_back(self, connection: Connection) -> None:
        dialect = self._database.dialect
        statement = text(f"DELETE FROM claims WHERE worker = :worker AND {dialect.among}")
        connection.execute(statement, {"worker": self.worker, "keys": dialect.bind(sorted(self._held))})

    def _forget(self, connection: Connection) -> None:
        """Delete leases that ended long ago, on questions that nobody has asked since."""
        long_ago = f"lease_end < {self._database.dialect.now} - :long"
        self._change(connection, "DELETE FROM claims", long_ago, {"long": _LONG_S})

    def _sweep(self) -> bool:
        """Free the claims of dead workers of this host; returns whether there were any."""
        self._swept = time.monotonic()
        workers = self._database.read(lambda found: found.execute(_WORKERS).scalars().all())
        gone = [{"worker": worker} for worker in workers if is_gone(worker)]
        if gone:
            self._database.write(lambda found: self._change(found, "DELETE FROM claims", "worker = :worker", gone))
        return bool(gone)

    def _change(self, connection: Connection, change: str, condition: str, bound: Any) -> None:
        """Change the claims for which a condition holds and that nobody else is changing at this moment."""
        rows = f"SELECT key FROM claims WHERE {condition} {self._database.dialect.skip_locked}"
        connection.execute(text(f"{change} WHERE key IN ({rows})"), bound)


_WORKERS = text("SELECT DISTINCT worker FROM claims")
