"""Sources of image-caption pairs, one file each; a file's name is the source's name."""

from __future__ import annotations

import importlib
import pkgutil

from components.data.source import Source
from components.errors import InputError


def find_source(name: str) -> Source:
    """The source in `sources/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if name not in known:
        raise InputError(f"params.yaml: prepare.source '{name}' is unknown: choose one of {', '.join(known)}")
    source: Source = importlib.import_module(f"{__name__}.{name}").SOURCE
    return source
