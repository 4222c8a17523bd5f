"""Engines, one file each; a file's name is the engine's name.

A file exports `ENGINE`: the class of the engine's settings in params.yaml, which is validated with the settings' key as
context, and the engine's class, which takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from pydantic import ValidationError

from components.captions.prompting.request import Reply, Request
from components.core.settings import Synthesize, explain_fault
from components.core.system.discovery import file_names, find
from components.core.system.errors import InputError


class Engine(Protocol):
    """Answers requests; one that cannot answer every one has a method `has(request)`, and gets only those."""

    @property
    def model(self) -> str:
        """Identifies the weights; part of every key of the store. Available without loading the model."""
        ...

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield batches of replies in any order, one reply per request, as soon as they are available.

        `requests` is lazy: an engine takes only requests that it can soon work on. A request that cannot be answered is
        a reply with a failure; an error is raised only where no further request can succeed (no server answers, wrong
        model name, missing key).
        """
        ...


def make_engine(settings: Synthesize, name: str) -> Engine:
    """The engine that `synthesize.llms.<name>` describes."""
    where = f"params.yaml: synthesize.llms.{name}"
    if name not in settings.llms:
        known = ", ".join(settings.llms) or "none"
        raise InputError(f"params.yaml: model '{name}' is not in synthesize.llms: add it, or choose one of {known}")
    block = dict(settings.llms[name])
    kind = block.pop("engine", None)
    options_type, engine_type = find(__name__, file_names(__path__), str(kind), "ENGINE", f"{where}.engine")
    try:
        options = options_type.model_validate(block, context=f"synthesize.llms.{name} of params.yaml")
    except ValidationError as error:
        raise InputError(f"{where}: {explain_fault(error, options_type)}") from None
    other = getattr(options, "otherwise", None)
    if other is not None and settings.llms.get(other, {}).get("engine") == kind:
        raise InputError(f"{where}.otherwise: '{other}' is a {kind} too: name a model")
    engine: Engine = engine_type(options, *([] if other is None else [make_engine(settings, other)]))
    return engine


def engine_of(settings: Synthesize, task: str) -> Engine:
    """The engine that answers a task; the one of `synthesize.default_llm` for a name that is not a task.

    Raises as `make_engine`.
    """
    block = settings.tasks.get(task)
    return make_engine(settings, settings.model_of(block) if block else settings.default_llm)
