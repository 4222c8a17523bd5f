"""The answers that a project brings along, `synthesize.replay`, merged into the generation store once."""

from __future__ import annotations

from itertools import islice

from components.captions.asking.questions import questions_of
from components.captions.engines import engine_of
from components.captions.store import GenerationStore
from components.core.errors import InputError
from components.core.settings import Settings


def import_replay(store: GenerationStore, settings: Settings) -> None:
    """Merge `synthesize.replay` into a store that never had it, but for the answers to live questions.

    Raises:
        InputError: the file is missing or no export, or the input of a task with live questions is missing.
    """
    if settings.synthesize.replay is not None:
        store.import_parquet(settings.synthesize.replay, once=True, without=lambda: _asked_live(settings))


def _asked_live(settings: Settings) -> set[str]:
    """Keys of the questions that are asked although the replay has their answers."""
    keys: set[str] = set()
    for name, asked in settings.synthesize.tasks.items():
        if asked.live:
            try:
                questions = questions_of(settings, name, engine_of(settings.synthesize, name))
            except InputError:
                # A student that is yet to be trained has answered nothing. What else is wrong, the task's own run says.
                continue
            keys.update(question.key for question in islice(questions.read(), asked.live))
    return keys
