"""Where the encoders of each seed are, and how stages are told to use another seed."""

from __future__ import annotations

from pathlib import Path

from components.core.settings import Settings
from components.evaluation.results import Folders


def folders_of(seed: int) -> Folders:
    """The folders of a seed of `study.seeds`; pairs and benchmark tables are those of all seeds."""
    return Folders(
        models=Path("models/study") / str(seed),
        embeddings=Path("data/study") / str(seed) / "embeddings",
        reports=Path("reports/study") / str(seed),
    )


def seeded(settings: Settings, seed: int) -> Settings:
    """The settings with which a stage trains and embeds for another seed; the worlds and tables keep theirs.

    Its runs in MLflow are in the world's experiment `<world>-study`, away from those that may be promoted.
    """
    train = settings.train.model_copy(update={"seed": seed, "state": settings.train.state / "study" / str(seed)})
    world = settings.world.model_copy(update={"name": f"{settings.world.name}-study"})
    return settings.model_copy(update={"train": train, "world": world})
