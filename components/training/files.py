"""What the train stage reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.core import folders
from components.data.leaks.report import FOLDER as LEAKS_FOLDER


@dataclass(frozen=True)
class Files:
    """Folders of the stage's inputs and output.

    `validated` is what a method reads: a folder of validated tables, or a single file.
    `leaks` is told to the run and changes no weights, so DVC does not train anew for it.
    """

    base: Path = folders.BASE
    validated: Path = folders.VALIDATED
    embeddings: Path = folders.EMBEDDINGS
    pairs: Path = folders.PAIRS
    models: Path = Path("models")
    leaks: Path = LEAKS_FOLDER
