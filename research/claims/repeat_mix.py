"""Stage `repeat_mix`: scores one mix of the encoders of another seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.project import run_in_project, start
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.results import Folders
from components.training.mixing import mix
from research.claims.seeds import folders_of, seeded


def run(settings: Settings, seed: int, name: str, folders: Folders) -> None:
    """Write the results of a mix; the encoder is not kept, because mixing takes a second."""
    settings = seeded(settings, seed)
    with TemporaryDirectory() as made:
        mix.run(settings, name, folders.models, Path(made) / name)
        evaluate.run(settings, name, replace(folders, models=Path(made)))


def main(
    name: Annotated[str, typer.Option("--mix", help="A seed and an entry of mixes, such as 1-all_needs.")],
) -> None:
    """Mix the encoders of another seed, and score the mix.

    Example: python -m research.claims.repeat_mix --mix 1-all_needs
    """
    seed, _, mixed = name.partition("-")
    run_in_project(lambda: run(load_checked(entries=()), int(seed), mixed, folders_of(int(seed))))


if __name__ == "__main__":
    start(main)
