"""What all blocks of settings share: base class, types, strict YAML, and faults in one line that names the place."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from components.core.system.discovery import FOLDER_NAME
from components.core.system.renamed import hint

_MOST_ALIASED = 10_000
"""Maximum number of values that the aliases of a document stand for: a few lines of them could mean gigabytes."""


def _named(name: str) -> str:
    if not FOLDER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} becomes a folder and a DVC stage: use 1 to 100 of A-Z, a-z, 0-9, _, - and .")
    return name


Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""The range that both NumPy and torch accept."""
Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]
"""`auto` is the GPU if there is one; `cuda:1` is the second of several."""


Name = Annotated[str, AfterValidator(_named)]
"""A name that becomes part of a path, of a stage and of a command."""


class Block(BaseModel):
    """A frozen group of settings that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_yaml(text: str) -> Any:
    """The content of a YAML document; None if it is empty.

    Raises:
        yaml.YAMLError: it is not YAML, has more than plain data, a key twice in a block, or aliases of too many values.
    """
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise yaml.YAMLError("blocks are nested too deeply: write fewer levels") from None


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
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}
        self._aliased = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """As PyYAML, but counts the values that aliases stand for."""
        is_alias, mark = self.check_event(yaml.AliasEvent), self.get_mark()
        node: Any = super().compose_node(parent, index)
        if is_alias:
            # A value that contains itself has no size yet.
            self._aliased += self._sizes.get(id(node), _MOST_ALIASED + 1)
            if self._aliased > _MOST_ALIASED:
                raise yaml.composer.ComposerError(None, None, "an alias: write the value in its place", mark)
            return node
        inner = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        size = 1 if isinstance(node, yaml.ScalarNode) else 1 + sum(self._sizes[id(part)] for part in inner)
        self._sizes[id(node)] = size
        return node

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
        return f"key '{key.removesuffix('.[key]')}': {fault['msg'].removeprefix('Value error, ')}"
    if old := hint(key):
        return f"unknown key '{key}': {old}"
    close = difflib.get_close_matches(str(fault["loc"][-1]), _keys_beside(model, fault["loc"]), n=1)
    return f"unknown key '{key}': " + (f"did you mean '{close[0]}'?" if close else "remove it")


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
