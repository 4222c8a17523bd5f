"""A small project that 0.2.0 wrote, `0.2.0.tar.xz`. A release adds one of its own, and none is ever changed.

It has 96 drawn pictures with captions, a tiny base encoder, 328 paid answers, a test set with ten reviews, six blind
votes, two promotions, an image index, an export, a stopped training, and a method and a benchmark of the user's own.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

from tests.support.checkout import make_checkout, newcomer

ARCHIVE = Path(__file__).with_name("0.2.0.tar.xz")
ADDRESS = "http://127.0.0.1:8642/v1"
"""Of the language model, in its profile."""
_PLACE = "/project"
"""Where it was, in MLflow's database."""


def unpack(folder: Path, url: str) -> None:
    """A checkout of this version with the kept project in it, whose language model is at `url`."""
    make_checkout(folder)
    pulled = (folder / "params.yaml").read_text("utf-8")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    # As after `cliptune profile reset` and `git pull`.
    (folder / "params.yaml").write_text(pulled, encoding="utf-8")
    profile = folder / "infra/profiles/shop.yaml"
    profile.write_text(profile.read_text("utf-8").replace(ADDRESS, f"{url}/v1"), encoding="utf-8")
    with closing(sqlite3.connect(folder / "mlruns/mlflow.db")) as database, database:
        for table, column in _addresses(database):
            database.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE {column} LIKE ?",
                (str(folder), len(_PLACE) + 1, f"{_PLACE}/%"),
            )


def _addresses(database: sqlite3.Connection) -> list[tuple[str, str]]:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = [(table, row[1]) for table in tables for row in database.execute(f"PRAGMA table_info({table})")]
    found = f"SELECT count(*) FROM {{}} WHERE {{}} LIKE '{_PLACE}/%'"
    return [place for place in columns if database.execute(found.format(*place)).fetchone()[0]]


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m` in the project, as a user runs it."""
    environment = newcomer(folder) | {"OPENAI_API_KEY": "none"}
    whole = [sys.executable, "-m", *arguments]
    return subprocess.run(whole, cwd=folder, env=environment, capture_output=True, text=True, check=False)
