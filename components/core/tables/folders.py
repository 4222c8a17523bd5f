"""Where tables lie: the output folders of the stages, relative to the project's folder, and the files of benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAIRS = Path("data/pairs")
VALIDATED = Path("data/validated")
QUARANTINE = Path("data/quarantine")
EVALUATION = Path("data/evaluation")
TEST_SET = Path("data/test_set")
WRITTEN = "queries"
"""The table of all queries in `TEST_SET`, which a language model wrote."""
EMBEDDINGS = Path("data/embeddings")
BASE = Path("models/base")

VALIDATION = "validation"
"""Folder in `EVALUATION` with the same tables of the validation split, for choices but never for results."""

SUMMARY = "summary.json"
"""The summary of a table by stage `validate`: `data/quarantine/<table>/summary.json`."""


def benchmark_table(folder: Path, file: str) -> Path:
    """The table `file` of `folder`, which is `EVALUATION` or `VALIDATION` in it.

    Where it lacks the table, it is that of the written test set next to `EVALUATION`, if there is one.
    """
    own, split = folder / file, folder.name == VALIDATION
    beside = (folder.parent if split else folder).with_name(TEST_SET.name)
    written = (beside / VALIDATION if split else beside) / file
    return written if written.is_file() and not own.exists() else own


@dataclass(frozen=True)
class RequiredFile:
    """A file or folder that a benchmark reads. Tables that stage `prepare` writes only have a path.

    Attributes:
        path: below the benchmark's folder.
        what: content, such as "23,937 cases".
        size: approximate size, such as "6 MB".
    """

    path: str
    what: str = ""
    size: str = ""
    licence: str = ""
    source: str = ""
    optional: bool = False

    @property
    def description(self) -> str:
        """Path, content, size, licence and source, for messages."""
        return f"{self.path} ({self.what}, {self.size}, licence: {self.licence}, from {self.source})"
