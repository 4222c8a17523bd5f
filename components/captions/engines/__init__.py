"""Engines, one file each; a file's name is the engine's name."""

from __future__ import annotations

from collections.abc import Callable

from components.captions.engine import Engine
from components.discovery import file_names, find
from components.settings import Synthesize, Task


def make_engine(settings: Synthesize, asked: Task) -> Engine:
    """The engine in `engines/<synthesize.engine>.py`, as one task wants it.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    make: Callable[[Synthesize, Task], Engine]
    make = find(__name__, file_names(__path__), settings.engine, "make", "params.yaml: synthesize.engine")
    return make(settings, asked)
