"""Paraphrases of single texts, one at a time, such as those that a person types into the explorer."""

from __future__ import annotations

from functools import cached_property

from components.captions.generating.engines import Engine, engine_of
from components.captions.generating.questions import questions_of
from components.captions.prompting.request import InputRow
from components.core.settings import Settings
from components.core.system.errors import InputError

TASK = "paraphrase_1"


class ParaphraseWriter:
    """Paraphrases by the language model of task `paraphrase_1`, which is loaded at the first request."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def can(self) -> bool:
        """Whether params.yaml has this task."""
        return TASK in self._settings.synthesize.tasks

    @cached_property
    def _engine(self) -> Engine:
        return engine_of(self._settings.synthesize, TASK)

    def paraphrases(self, text: str, count: int) -> list[str]:
        """Up to `count` different paraphrases of a text."""
        if not self.can:
            raise InputError(f"params.yaml has no block synthesize.tasks.{TASK}: type the wordings yourself")
        questions = questions_of(self._settings, TASK, self._engine)
        task = questions.task
        source = InputRow("", 0, dict.fromkeys(task.inputs, text))
        requests = [questions.about(source, attempt) for attempt in range(count)]
        replies = [reply for batch in self._engine.answer(requests) for reply in batch]
        wordings = [task.parse(reply.answer) for reply in replies if reply.answer is not None]
        distinct = dict.fromkeys(wording.strip() for wording in wordings if wording and wording.strip())
        found = [wording for wording in distinct if wording.lower() != text.lower()]
        if not found:
            raise InputError(f"the language model has no other wording of '{text[:80]}': type one yourself")
        return found
