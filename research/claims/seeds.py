"""Folders of each seed of the study, and settings of stages for another seed."""

from __future__ import annotations

from pathlib import Path

from components.core.settings import Settings
from components.evaluation.scoring.results import Folders


def folders_of(seed: int) -> Folders:
    """The folders of a seed of `study.seeds`; all seeds share pairs and benchmark tables."""
    return Folders(
        models=Path("models/study") / str(seed),
        embeddings=Path("data/study") / str(seed) / "embeddings",
        reports=Path("reports/study") / str(seed),
    )


def seeded(settings: Settings, seed: int) -> Settings:
    """The settings of a stage for another seed; its MLflow runs are in `<world>-study`, apart from promotable ones."""
    train = settings.train.model_copy(
        update={"seed": seed, "checkpoint_dir": settings.train.checkpoint_dir / "study" / str(seed)}
    )
    world = settings.dataset.model_copy(update={"name": f"{settings.dataset.name}-study"})
    return settings.model_copy(update={"train": train, "dataset": world})
