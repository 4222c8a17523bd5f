"""Engines, one file each; a file's name is the engine's name."""

from __future__ import annotations

from collections.abc import Callable

from components.captions.engine import Engine
from components.discovery import file_names, find
from components.settings import Synthesize


def make_engine(settings: Synthesize) -> Engine:
    """The engine in `engines/<synthesize.engine>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    make: Callable[[Synthesize], Engine]
    make = find(__name__, file_names(__path__), settings.engine, "make", "params.yaml: synthesize.engine")
    return make(settings)
