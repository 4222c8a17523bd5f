"""PostgreSQL: one store for workers on several hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from components.captions.store.rows import Row

_MIGRATIONS = 7_025_190_016
"""Number of the advisory lock; it only has to be the same for all who migrate a store."""

_PASSING = {
    "40001",  # serialization failure
    "40P01",  # deadlock
    "53300",  # too many connections
    "57P01",  # the administrator ended the connection
    "57P02",  # the server crashed
    "57P03",  # the server is starting or stopping
}

_CONNECT: dict[str, Any] = {
    # Plans of prepared statements are kept from when the tables were small.
    "prepare_threshold": None,
    "application_name": "cliptune",
    # A host that is gone without a word must not be waited for until the kernel gives up after a quarter of an hour.
    "connect_timeout": 10,
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class Postgresql:
    """See `Dialect`. Every statement is a transaction of its own, which saves its BEGIN and COMMIT."""

    now = "CAST(extract(epoch FROM statement_timestamp()) AS double precision)"
    collation = "C"
    # A list in one string: as an array it would be quoted in Python, item by item.
    among = "key = ANY (string_to_array(:keys, ','))"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    size = (
        "SELECT CAST(sum(pg_total_relation_size(to_regclass(name))) AS bigint)"
        " FROM unnest(ARRAY['generations', 'failures', 'claims', 'imports']) AS name"
    )

    def prepare(self, url: URL, *, must_exist: bool) -> tuple[URL, Mapping[str, Any]]:
        """Psycopg 3, committing every statement."""
        connect = {key: value for key, value in _CONNECT.items() if key not in url.query}
        return url.set(drivername="postgresql+psycopg"), {"connect_args": connect, "isolation_level": "AUTOCOMMIT"}

    def listen(self, engine: Engine) -> None:
        """Nothing to set up."""

    @contextmanager
    def writing(self, engine: Engine) -> Iterator[Connection]:
        """A connection that commits every statement."""
        with engine.connect() as connection:
            yield connection

    reading = writing

    @contextmanager
    def streaming(self, engine: Engine) -> Iterator[Connection]:
        """A transaction, which a cursor of the server needs."""
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            yield connection

    @contextmanager
    def migrating(self, engine: Engine) -> Iterator[Connection]:
        """A transaction under an advisory lock."""
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _MIGRATIONS})
            yield connection

    def passes(self, error: DBAPIError) -> bool:
        """A lost connection, a deadlock, a server that is full or restarts."""
        state = getattr(error.orig, "sqlstate", None)
        return error.connection_invalidated or state in _PASSING or (state is None and _is_operational(error))

    def bind(self, keys: Sequence[str]) -> str:
        """Keys with commas between."""
        return ",".join(keys)

    def add(self, connection: Connection, answers: list[Row], failures: list[Row], workers: Sequence[str]) -> int:
        """One statement: all of it or nothing, in one round trip."""
        bound = {
            "answers": json.dumps(answers, ensure_ascii=False),
            "failures": json.dumps(failures, ensure_ascii=False),
            "answered": self.bind([str(row["key"]) for row in answers]),
            "failed": self.bind([str(row["key"]) for row in failures]),
            "workers": self.bind(workers),
        }
        return int(connection.execute(_ADD, bound).scalar_one())

    def take(self, connection: Connection, keys: Sequence[str], worker: str, lease_s: float) -> set[str]:
        """Claim, then look for answers once more.

        A statement sees the database as it was when it began. Who answered and gave up a claim since then is seen
        only by a second statement; whoever comes later finds the claim.
        """
        bound = {"keys": self.bind(keys), "worker": worker, "lease": lease_s}
        taken = set(connection.execute(_TAKE, bound).scalars())
        if taken:
            taken -= set(connection.execute(_TOO_LATE, {"keys": self.bind(sorted(taken)), "worker": worker}).scalars())
        return taken


def _is_operational(error: DBAPIError) -> bool:
    import psycopg

    return isinstance(error.orig, psycopg.OperationalError)


_ADD = text(f"""
WITH answered AS (
  INSERT INTO generations (key, task, prompt_sha256, model, sampling, attempt, answer, created)
  SELECT * FROM json_to_recordset(CAST(:answers AS json)) AS one (
    key text, task text, prompt_sha256 text, model text, sampling text, attempt int, answer text, created text)
  ORDER BY key
  ON CONFLICT (key) DO NOTHING
  RETURNING 1
), fixed AS (
  DELETE FROM failures WHERE key = ANY (string_to_array(:answered, ','))
), failed AS (
  INSERT INTO failures (key, task, model, reason, attempts, at)
  SELECT one.*, 1, {Postgresql.now}
  FROM json_to_recordset(CAST(:failures AS json)) AS one (key text, task text, model text, reason text)
  WHERE NOT EXISTS (SELECT FROM generations WHERE generations.key = one.key)
  ORDER BY key
  ON CONFLICT (key) DO UPDATE SET reason = excluded.reason, attempts = failures.attempts + 1, at = excluded.at
), settled AS (
  DELETE FROM claims
  WHERE key = ANY (string_to_array(:answered, ','))
     OR key = ANY (string_to_array(:failed, ',')) AND worker = ANY (string_to_array(:workers, ','))
)
SELECT count(*) FROM answered
""")

# Claims need not outlive a crash of the server as answers must, so their commit does not wait for its disk.
# The order keeps two workers who want the same keys from waiting for each other.
_TAKE = text(f"""
WITH new AS (
  INSERT INTO claims (key, worker, lease_end)
  SELECT one, :worker, {Postgresql.now} + :lease
  FROM set_config('synchronous_commit', 'off', true), unnest(string_to_array(:keys, ',')) AS one
  WHERE NOT EXISTS (SELECT FROM generations WHERE generations.key = one)
  ORDER BY one
  ON CONFLICT (key) DO NOTHING
  RETURNING key
), free AS (
  SELECT key FROM claims
  WHERE {Postgresql.among} AND (worker = :worker OR lease_end < {Postgresql.now})
  {Postgresql.skip_locked}
), freed AS (
  UPDATE claims SET worker = :worker, lease_end = {Postgresql.now} + :lease
  FROM free WHERE claims.key = free.key
  RETURNING claims.key
)
SELECT key FROM new UNION ALL SELECT key FROM freed
""")

_TOO_LATE = text(f"""
DELETE FROM claims
WHERE {Postgresql.among} AND worker = :worker
  AND EXISTS (SELECT FROM generations WHERE generations.key = claims.key)
RETURNING key
""")

DIALECT = Postgresql()
