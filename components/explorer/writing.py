"""Other wordings of a wish, written by the language model of `synthesize`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from components.captions.asking.questions import questions_of
from components.captions.engines import Engine, engine_of
from components.captions.request import InputRow
from components.core.errors import InputError
from components.core.settings import Settings

TASK = "paraphrase_1"


class Writer:
    """Asks the engine of task `paraphrase_1`; the model is loaded at the first question."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def can(self) -> bool:
        """Whether params.yaml says who writes."""
        return TASK in self._settings.synthesize.tasks

    @cached_property
    def _engine(self) -> Engine:
        return engine_of(self._settings.synthesize, TASK)

    def paraphrases(self, text: str, count: int) -> list[str]:
        """Up to `count` different wordings of a text.

        Raises:
            InputError: params.yaml has no such task, the model cannot be had, or it has nothing usable to say.
        """
        if not self.can:
            raise InputError(f"params.yaml has no block synthesize.tasks.{TASK}: type the wordings yourself")
        questions = questions_of(self._settings, TASK, self._engine)
        task = questions.task
        source = InputRow("", 0, dict.fromkeys(task.inputs, text))
        requests = [questions.about(source, attempt) for attempt in range(count)]
        replies = [reply for batch in self._engine.answer(requests) for reply in batch]
        said = [task.parse(reply.answer) for reply in replies if reply.answer is not None]
        return _different(text, said) or _nothing(text)


def _different(text: str, said: Sequence[str | None]) -> list[str]:
    kept = dict.fromkeys(one.strip() for one in said if one and one.strip())
    return [one for one in kept if one.lower() != text.lower()]


def _nothing(text: str) -> list[str]:
    raise InputError(f"the language model has no other wording of '{text[:80]}': type one yourself")
