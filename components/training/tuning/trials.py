"""Trials of a search: an Optuna study that an interrupted search resumes, and the scores of an encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from components.core.settings import Settings
from components.core.system.progress import track
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import HalfScores

STORE = "sqlite:///state/search.db"
Scores = Callable[[Encoder], HalfScores]


def gate_metrics(settings: Settings) -> list[str]:
    """The primary metric of `promote` and its guards."""
    return list(dict.fromkeys([settings.promote.metric, *settings.promote.active_guards]))


def open_study(
    store: str, name: str, sampler: optuna.samplers.BaseSampler, first: list[dict[str, Any]], **options: Any
) -> optuna.Study:
    """The study of that name in the store, created if it does not exist.

    Args:
        first: the parameters of the first trials.
        options: those of Optuna.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if store.startswith("sqlite:///"):
        Path(store.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(study_name=name, storage=store, sampler=sampler, load_if_exists=True, **options)
    if not study.trials:
        for params in first:
            study.enqueue_trial(params)
    return study


def run_trials(study: optuna.Study, title: str, trials: int, run: Callable[[optuna.Trial], None]) -> list[FrozenTrial]:
    """`run` one trial after the other until there are `trials` of them; returns all that ended."""
    left = max(0, trials - len(_ended(study)))
    for _ in track(range(left), title, left, "trial"):
        run(study.ask())
    return _ended(study)


def _ended(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=[TrialState.COMPLETE, TrialState.PRUNED])
