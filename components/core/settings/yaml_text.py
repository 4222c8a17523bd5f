"""Parses YAML strictly, and turns faults of YAML and of settings into one line that names the place."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError


def read_yaml(text: str) -> Any:
    """The content of a YAML document; None if it is empty.

    Raises:
        yaml.YAMLError: it is not YAML, contains more than plain data, or a block has a key twice.
    """
    return yaml.load(text, _Loader)


def explain_yaml(error: Exception) -> str:
    """The fault, its place and its fix in one line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(error).splitlines()[0]
    problem = str(getattr(error, "problem", ""))
    if "'\\t'" in problem:
        problem = "a tab, which YAML does not allow: indent with spaces"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """As PyYAML, but refuses equal keys, of which PyYAML takes the last."""
        lines: dict[Any, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                problem = f"key '{key.value}' is already in line {lines[key.value]} of the same block: remove one"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)


def explain_fault(error: ValidationError, model: type[BaseModel]) -> str:
    """The most useful fault of a validation error of `model`, with its key."""
    # A mistyped key is both unknown and missing; the user typed the unknown one.
    fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] != "extra_forbidden":
        return f"key '{key}': {fault['msg']}"
    close = difflib.get_close_matches(str(fault["loc"][-1]), _keys_beside(model, fault["loc"]), n=1)
    hint = f"did you mean '{close[0]}'?" if close else "remove it"
    return f"unknown key '{key}': {hint}"


def _keys_beside(model: type[BaseModel], loc: Sequence[int | str]) -> set[str]:
    """The valid keys of the block of `model` that has the key at `loc`."""
    block = model
    for part in loc[:-1]:
        # Other parts are names of entries, or numbers in a list.
        if field := next((one for name, one in block.model_fields.items() if part in (name, one.alias)), None):
            block = next(_blocks(field.annotation), block)
    return {field.alias or name for name, field in block.model_fields.items()}


def _blocks(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _blocks(inner)
