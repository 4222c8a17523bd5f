"""Parses YAML strictly: a key that stands twice is an error, and errors name the line."""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """The content of a YAML document; None when there is none.

    Raises:
        yaml.YAMLError: it is no YAML, asks for anything but plain data, or a block has a key twice.
    """
    return yaml.load(text, _Loader)


def explain_yaml(error: Exception) -> str:
    """What is wrong, where, and what to do, in one line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(error).splitlines()[0]
    problem = str(getattr(error, "problem", ""))
    if "'\\t'" in problem:
        problem = "a tab, which YAML does not take: indent with spaces"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """As PyYAML does, whose last of two equal keys would win."""
        seen: dict[Any, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                problem = f"key '{key.value}' is already in line {seen[key.value]} of the same block: remove one"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)
