"""Stage `repeat`: trains and scores one method on the base of another seed."""

from __future__ import annotations

from typing import Annotated

import typer

from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.project import run_in_project, start
from components.core.tables.folders import BASE
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.results import Folders
from components.training import train
from components.training.data import TrainingFiles
from components.training.methods.registry import find_entry
from research.claims.seeds import folders_of, seeded


def run(settings: Settings, seed: int, encoder: str, folders: Folders) -> None:
    """Write an encoder that starts from a seed's base, and its results."""
    settings = seeded(settings, seed)
    files = TrainingFiles(
        base=folders.models / BASE.name,
        validated=find_entry(settings.methods, encoder).reads,
        embeddings=folders.embeddings,
        pairs=folders.pairs,
        models=folders.models,
    )
    train.run(settings, encoder, files)
    evaluate.run(settings, encoder, folders)


def main(encoder: Annotated[str, typer.Option(help="A seed and an entry of methods, such as 1-paraclip.")]) -> None:
    """Train a method on the base of another seed, and score it.

    Example: python -m research.claims.repeat --encoder 1-paraclip
    """
    seed, _, entry = encoder.partition("-")
    run_in_project(lambda: run(load_checked(entries=[entry]), int(seed), entry, folders_of(int(seed))))


if __name__ == "__main__":
    start(main)
