"""Fine-tuning methods, one file each; a file's name is the method's name and its key in params.yaml."""

from __future__ import annotations

import importlib
import pkgutil

from components.errors import InputError
from components.methods.method import Method

_NOT_METHODS = {"method"}


def method_names() -> list[str]:
    """The names of all methods, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NOT_METHODS)


def find_method(name: str) -> Method:
    """The method in `methods/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    if name not in method_names():
        raise InputError(f"method '{name}' is unknown: choose one of {', '.join(method_names())}")
    method: Method = importlib.import_module(f"{__name__}.{name}").METHOD
    return method
