"""A project whose captions a server rewrites, and the stage `synthesize` run there as users run it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import yaml

from components.core.tables.records import GENERATIONS, PAIRS
from tests.support.waiting import wait_until

REPO = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "components.captions.synthesize", "--task", "paraphrase_1", "--fresh")


def write_captions(folder: Path, captions: Sequence[str]) -> None:
    count, ids = len(captions), [f"p{number}" for number in range(len(captions))]
    columns = {"id": ids, "image_id": ids, "caption": list(captions), "image": [b"i"] * count, "facts": [None] * count}
    PAIRS.write(folder / "data" / "pairs" / "train.parquet", columns)


@dataclass(frozen=True)
class ServerProject:
    """A folder with params.yaml and the pairs to rewrite."""

    folder: Path

    @staticmethod
    def make(folder: Path, params: dict[str, Any], rows: int, url: str, **options: Any) -> ServerProject:
        """Write a project of `rows` captions; `params` is the repository's params.yaml, `options` the engine's."""
        captions = [f"a small dog number {number} left of a large cat" for number in range(rows)]
        write_captions(folder, captions)
        params["synthesize"] |= {
            "llms": {"fake": {"engine": "server", "urls": [url], "model": "fake", **options}},
            "tasks": {"paraphrase_1": {"table": "paraphrases", "input": "data/pairs/train.parquet"}},
            **{"default_llm": "fake", "cached_answers": None, "max_captions": rows},
        }
        (folder / "params.yaml").write_text(yaml.safe_dump(params))
        return ServerProject(folder)

    @property
    def table_path(self) -> Path:
        return self.folder / "data" / "captions" / "paraphrases" / "paraphrase_1.parquet"

    def table(self) -> pa.Table:
        return GENERATIONS.read(self.table_path)

    def start(self, errors: IO[str] | int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start the stage; `errors` is where its stderr goes."""
        environment = {**os.environ, "PYTHONPATH": str(REPO)}
        pipes = {"stdout": subprocess.PIPE, "stderr": errors}
        return subprocess.Popen(COMMAND, cwd=self.folder, env=environment, text=True, **pipes)

    def run(self) -> subprocess.CompletedProcess[str]:
        with self.start() as process:
            output, errors = process.communicate()
        return subprocess.CompletedProcess(COMMAND, process.returncode, output, errors)

    def stored(self, table: str = "generations") -> int:
        """How many rows a table of the store has; none before there is a store."""
        store = self.folder / "state" / "generations.db"
        if not store.exists():
            return 0
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            try:
                count: int = connection.execute(f"select count(*) from {table}").fetchone()[0]
            except sqlite3.OperationalError:
                return 0
        connection.close()
        return count

    def wait_until_stored(self, count: int) -> None:
        fault = "{} of the {} answers that the server sent were stored".format
        wait_until(lambda: self.stored() >= count, 60, lambda: fault(self.stored(), count))
