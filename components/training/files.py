"""What the train stage reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.data.leaks.report import FOLDER as LEAKS_FOLDER
from components.data.prepare import PAIRS_FOLDER
from components.encoders.base import OUTPUT as BASE_FOLDER
from components.encoders.embed import OUTPUT as EMBEDDINGS_FOLDER


@dataclass(frozen=True)
class Files:
    """Folders of the stage's inputs and output.

    `leaks` is told to the run and changes no weights, so DVC does not train anew for it.
    """

    base: Path = BASE_FOLDER
    validated: Path = Path("data/validated")
    embeddings: Path = EMBEDDINGS_FOLDER
    pairs: Path = PAIRS_FOLDER
    models: Path = Path("models")
    leaks: Path = LEAKS_FOLDER
