"""Engines, one file each; a file's name is the engine's name.

A file exports `Options`, the engine's settings in params.yaml, and `make`, which makes it from them.
"""

from __future__ import annotations

import importlib

from pydantic import ValidationError

from components.captions.engine import Engine
from components.core.discovery import file_names, find
from components.core.errors import InputError
from components.core.settings import Synthesize, explain_fault


def make_engine(settings: Synthesize, name: str) -> Engine:
    """The engine that `synthesize.models.<name>` describes.

    Raises:
        InputError: there is no such model or engine, or a setting of it is unknown or wrong; the message names it.
    """
    where = f"params.yaml: synthesize.models.{name}"
    if name not in settings.models:
        known = ", ".join(settings.models) or "none"
        raise InputError(f"params.yaml: model '{name}' is not in synthesize.models: add it, or choose one of {known}")
    block = dict(settings.models[name])
    engine = block.pop("engine", None)
    make = find(__name__, file_names(__path__), str(engine), "make", f"{where}.engine")
    module = importlib.import_module(f"{__name__}.{engine}")
    try:
        options = module.Options.model_validate(block)
    except ValidationError as error:
        raise InputError(f"{where}: {explain_fault(error, module.Options)}") from None
    made: Engine = make(options)
    return made


def engine_of(settings: Synthesize, task: str) -> Engine:
    """The engine that answers a task; that of `synthesize.model` for a name that is no task.

    Raises:
        InputError: as `make_engine`.
    """
    asked = settings.tasks.get(task)
    return make_engine(settings, settings.model_of(asked) if asked else settings.model)
