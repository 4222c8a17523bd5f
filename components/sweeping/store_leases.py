"""Releases claims in the generation store whose worker is dead or whose lease is over."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, text

from components.captions.store.database import Database
from components.core.worker_identity import is_gone
from components.sweeping.finding import Finding

_SQLITE = "sqlite:///"


def sweep_leases(url: str, dry_run: bool) -> list[Finding]:
    """Give back what dead workers of this host claim, and what anyone claims under a lease that is over.

    Args:
        url: the store's, as `synthesize.store` in params.yaml.
        dry_run: only tell.

    Raises:
        InputError: the store cannot be reached.
    """
    if url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).is_file():
        return []
    database = Database(url, must_exist=True)
    try:
        now = database.dialect.now
        over = f"SUM(CASE WHEN lease_end < {now} THEN 1 ELSE 0 END)"
        held = text(f"SELECT worker, COUNT(*), {over} FROM claims GROUP BY worker ORDER BY worker")
        rows = database.read(lambda found: found.execute(held).all())
        dead = {worker: is_gone(worker) for worker, _, _ in rows}
        gone = [(worker, count if dead[worker] else ended) for worker, count, ended in rows if dead[worker] or ended]
        for worker, _ in [] if dry_run else gone:
            condition = "" if dead[worker] else f" AND lease_end < {now}"
            _give_back(database, worker, condition)
    finally:
        database.close()
    return [
        Finding(
            "generation store",
            f"{count} claims of {worker}",
            "the worker is dead" if dead[worker] else "the lease is over",
            "given back",
        )
        for worker, count in gone
    ]


def _give_back(database: Database, worker: str, condition: str) -> None:
    rows = f"SELECT key FROM claims WHERE worker = :worker{condition} {database.dialect.skip_locked}"
    statement = text(f"DELETE FROM claims WHERE key IN ({rows})")

    def delete(connection: Connection) -> None:
        connection.execute(statement, {"worker": worker})

    database.write(delete)
