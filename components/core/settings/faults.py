"""Turns pydantic's errors about settings into one line that names the key."""

from __future__ import annotations

import difflib

from pydantic import BaseModel, ValidationError


def explain_fault(error: ValidationError, model: type[BaseModel]) -> str:
    """The most telling fault of a validation error of `model`, naming its key."""
    # A mistyped key is both unknown and missing; the unknown one shows the user what was typed.
    fault = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] != "extra_forbidden":
        return f"key '{key}': {fault['msg']}"
    close = difflib.get_close_matches(str(fault["loc"][-1]), known_keys(model), n=1)
    hint = f"did you mean '{close[0]}'?" if close else "remove it"
    return f"unknown key '{key}': {hint}"


def known_keys(model: type[BaseModel]) -> set[str]:
    """Every key that any block below `model` knows."""
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        keys.add(field.alias or name)
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                keys |= known_keys(inner)
    return keys
