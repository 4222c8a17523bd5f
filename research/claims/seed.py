"""Stage `seed`: trains, embeds and scores the base encoder with another seed."""

from __future__ import annotations

from typing import Annotated

import typer

from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.project import run_in_project, start
from components.core.tables.folders import BASE
from components.encoders import embed
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.results import Folders
from components.training.base import base
from research.claims.seeds import folders_of, seeded


def run(settings: Settings, seed: int, folders: Folders) -> None:
    """Write the base of a seed, its embeddings and its results."""
    settings = seeded(settings, seed)
    model = folders.models / BASE.name
    base.run(settings, model, folders.pairs)
    embed.run(settings, folders.embeddings, folders.pairs, model)
    evaluate.run(settings, BASE.name, folders)


def main(seed: Annotated[int, typer.Option(help="One of study.seeds.")]) -> None:
    """Train, embed and score the base encoder with another seed.

    Example: python -m research.claims.seed --seed 1
    """
    run_in_project(lambda: run(load_checked(entries=()), seed, folders_of(seed)))


if __name__ == "__main__":
    start(main)
