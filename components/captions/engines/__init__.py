"""Engines, one file each; a file's name is the engine's name."""

from __future__ import annotations

import importlib
import pkgutil

from components.captions.engine import Engine
from components.errors import InputError
from components.settings import Synthesize


def make_engine(settings: Synthesize) -> Engine:
    """The engine in `engines/<synthesize.engine>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if settings.engine not in known:
        raise InputError(f"params.yaml: synthesize.engine '{settings.engine}' is unknown: choose {', '.join(known)}")
    engine: Engine = importlib.import_module(f"{__name__}.{settings.engine}").make(settings)
    return engine
