"""Write docs/settings.md, commands.md and metrics.md from docstrings and help, and the tables of docs/upgrade.md.

python docs/scripts/reference.py            # writes the pages that changed
python docs/scripts/reference.py --check    # fails if one differs
"""

import dataclasses
import inspect
import re
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import griffe
import typer

from components.cli import app
from components.core.settings import Block, Limits, Settings
from components.core.system.renamed import KEYS, MODULES, REMOVED, VALUES
from components.evaluation.benchmarks.project import benchmark_names, find_benchmark
from components.evaluation.benchmarks.published import published_benchmarks
from components.evaluation.scoring.benchmark import Benchmark
from components.training.methods.contract.method import Optimisation
from components.training.methods.registry import find_method, method_names

DOCS = Path(__file__).parents[1]
WRITTEN = "<!-- Written by docs/scripts/reference.py: change the docstrings instead. -->\n"
_WORDS = {int: "integer", float: "number", str: "text", bool: "true or false", Path: "path", type(None): "null",
          Any: "any value"}  # fmt: skip
_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def settings_page() -> str:
    """Every key of params.yaml by block, with type, default and meaning."""
    parts = [
        "# Settings\n",
        WRITTEN,
        "`params.yaml` has one block for each stage. Required keys have no default. An unknown key is an error.\n",
        "`null` in a profile removes a value. `cliptune plan` checks the file before anything runs.\n",
    ]
    for name, field in Settings.model_fields.items():
        key = field.alias or name
        if blocks := list(_blocks(field.annotation)):
            nested = isinstance(field.annotation, type)
            parts += [f"## {key}\n"] + [part for block in blocks for part in _block(block, key, nested)]
        elif name != "methods":
            parts += [f"## {key}\n", f"{_type(field.annotation).capitalize()}. {_docs(Settings).get(name, '')}\n"]
        else:
            parts += ["## methods\n", *_methods()]
    return "\n".join(parts)


def _block(block: type[Block], path: str, nested: bool) -> Iterator[str]:
    docs, deeper = _docs(block), list[tuple[type[Block], str]]()
    if not nested:
        path += ".<name>"
        yield f"Each entry `{path}` has these keys.\n"
    yield f"{_first(block)}\n"
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    skipped = set(Limits.model_fields) if block.__name__ == "TableLimits" else set()
    for name, field in block.model_fields.items():
        if name in skipped:
            continue
        bounds = ", ".join(
            f"{sign} {getattr(one, key):g}"
            for one in field.metadata
            for key, sign in _BOUNDS.items()
            if isinstance(getattr(one, key, None), (int, float)) and abs(getattr(one, key)) < 2**60
        )
        default = "required" if field.is_required() else _value(field.get_default(call_default_factory=True))
        inner = list(_blocks(field.annotation))
        deeper += [(one, f"{path}.{name}") for one in inner]
        limits = f" {bounds}" if bounds else ""
        kind = f"block `{path}.{name}`" if inner else f"{_type(field.annotation)}{limits}"
        yield f"| `{name}` | {kind} | {default} | {_cell(docs.get(name, ''))} |"
    if skipped:
        yield "| any key of `validate` | | that of `validate` | A limit for this table only. |"
    yield ""
    for one, place in deeper:
        yield f"### {place}\n"
        yield from _block(one, place, True)


def _methods() -> Iterator[str]:
    """Hyper-parameters that all methods have, then those of each."""
    yield "Each entry has `method` (the entry's own name by default), `train_data` (a table, or a folder of tables),"
    yield "and any of these hyper-parameters. Their defaults are those of the method's paper.\n"
    yield _fields(Optimisation, set())
    common = {field.name for field in dataclasses.fields(Optimisation)}
    for name in method_names():
        method = find_method(name)
        yield f"### {name}\n\n{method.citation}.\n\n{_fields(method.settings_class, common)}"


def _fields(hyper: type, common: set[str]) -> str:
    """The fields of a dataclass; of the `common` ones only values that differ."""
    docs, general = _docs(hyper), {field.name: field.default for field in dataclasses.fields(Optimisation)}
    own, other = [], []
    for field in dataclasses.fields(hyper):
        default = "required" if field.default is dataclasses.MISSING else _value(field.default)
        if field.name not in common:
            own.append(f"| `{field.name}` | {default} | {_cell(docs.get(field.name, ''))} |")
        elif field.default != general[field.name]:
            other.append(f"`{field.name}` {default}")
    table = "| key | default | meaning |\n|---|---|---|\n" + "\n".join(own) + "\n"
    return (table if own else "") + (f"\nDefaults of common keys: {', '.join(other)}.\n" if other else "")


def commands_page() -> str:
    """The help of every command."""
    parts = ["# Commands\n", WRITTEN, "Every command has `--help`. Commands work in any folder of the project.\n"]
    parts += _commands(typer.main.get_command(app), "cliptune")
    return "\n".join(parts)


def _commands(command: Any, path: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name in sorted(command.commands):
            yield from _commands(command.commands[name], f"{path} {name}")
        return
    text, *examples = re.split(r"\nExamples?: ", inspect.cleandoc(command.help or ""))
    yield f"## {path}\n\n{_shown(text.strip())}\n"
    if examples:
        lines = [" ".join(line.split()) for line in re.split(r";\s+|\n\n", examples[0])]
        yield "```text\n" + "\n".join(lines) + "\n```\n"
    rows = []
    for one in command.params:
        if one.name == "help":
            continue
        argument = one.param_type_name == "argument"
        name = f"`{one.name.upper()}`" if argument else f"`{', '.join(one.opts)}`"
        help_text = getattr(one, "help", "") or ""
        shown = one.default not in (None, False, "", ()) and not callable(one.default) and not one.required
        rows.append(f"| {name} | {_cell(help_text)} | {_value(one.default) if shown else ''} |")
    if rows:
        yield "| option | meaning | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def metrics_page() -> str:
    """Every metric with its direction and its rule for ties."""
    parts = [
        "# Metrics\n",
        WRITTEN,
        "A metric's key is `<benchmark>/<metric>`, or `<benchmark>/<group>/<metric>` for a group of queries. Values",
        "are between 0 and 1 in files and settings; pages and tables show them times 100. `@k` is a number of results.",
        "Bold metrics are in `cliptune report` without `--all`.\n",
        "## On your own data, and on the synthetic dataset\n",
        *_metrics([find_benchmark(name) for name in benchmark_names()]),
        "## Published benchmarks\n",
        "`cliptune evaluate --benchmark <name>` scores these on the files that their authors published.\n",
        *_metrics([found for _, found in sorted(published_benchmarks().items())]),
    ]
    return "\n".join(parts)


def _metrics(benchmarks: list[Benchmark[Any]]) -> Iterator[str]:
    """A table of metrics for each benchmark, or for several that have the same metrics."""
    alike: dict[str, list[Benchmark[Any]]] = {}
    for found in benchmarks:
        rows = ["| metric | better | ties |\n|---|---|---|"]
        for metric in found.metrics:
            shown = f"`{metric.name}`"
            if any(_matches(key, f"{found.name}/{metric.name}") for key in found.key_metrics):
                shown = f"**{shown}**"
            rows.append(f"| {shown} | {'higher' if metric.higher_is_better else 'lower'} | {_cell(metric.ties)} |")
        alike.setdefault("\n".join(rows), []).append(found)
    for table, same in alike.items():
        if len(same) == 1:
            yield f"### {same[0].name}\n\n{_question(same[0])}\n\n{table}\n"
        else:
            listed = "\n".join(f"| `{one.name}` | {_question(one)} |" for one in same)
            yield f"### {same[0].name} and {len(same) - 1} more\n"
            yield f"| benchmark | source |\n|---|---|\n{listed}\n\n{table}\n"


def _question(found: Benchmark[Any]) -> str:
    """The first paragraph of the benchmark's file, or its source."""
    if found.name in benchmark_names():
        return _cell((inspect.getdoc(found.score) or "").split("\n\n")[0])
    return f"{found.citation.rstrip('.')}."


def _matches(key: str, name: str) -> bool:
    return re.fullmatch(re.escape(name).replace("_k", r"_\d+"), key) is not None


def _blocks(annotation: Any) -> Iterator[type[Block]]:
    """The blocks in a type."""
    if isinstance(annotation, type) and issubclass(annotation, Block):
        yield annotation
    for one in get_args(annotation):
        yield from _blocks(one)


def _type(annotation: Any) -> str:  # noqa: PLR0911
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(args[0])
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in args)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_type, args)))
    if origin is tuple and args[-1] is Ellipsis:
        return f"list of {_type(args[0])}"
    if origin is tuple:
        return f"list of {len(args)} {_type(args[0])}s"
    if annotation == dict[str, Any]:
        return "an engine's settings"
    if origin is dict:
        return f"mapping of names to {_type(args[1])}"
    return _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _value(value: Any) -> str:
    if value is None:
        return "`null`"
    if isinstance(value, Block) or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (tuple, list)):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def _cell(text: str) -> str:
    """A text for a table's cell. It begins with a capital, unless the first word is one to be typed."""
    text = " ".join(_shown(text).replace("|", "\\|").split())
    is_typed = re.match(r"\w+([_:@/]|, \w+(_\w+)?,)", text) is not None
    return text if is_typed else text[:1].upper() + text[1:]


def _shown(text: str) -> str:
    """Markdown of a help text: words in angle brackets are not tags; code is unchanged."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;").replace(">", "&gt;") for part in parts)


def _first(thing: type) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\nAttributes:")[0].split())


@cache
def _docs(thing: type) -> dict[str, str]:
    """Name of a field -> its docstring: of the field, or of `Attributes:` of its class; inherited ones too."""
    found: dict[str, str] = {}
    for parent in reversed(thing.__mro__):
        if not parent.__module__.startswith("components."):
            continue
        loaded = _module(parent.__module__)[parent.__name__]
        for name, member in loaded.members.items():
            if getattr(member, "docstring", None):
                found[name] = member.docstring.value
        for section in loaded.docstring.parse("google") if loaded.docstring else ():
            if section.kind.value == "attributes":
                for one in section.value:
                    found |= {name.strip(): one.description for name in one.name.split(",")}
    return found


@cache
def _module(name: str) -> Any:
    return griffe.load(name)


def upgrade_page() -> str:
    """The page's own text, and what earlier versions called settings and modules."""
    prose = (DOCS / "upgrade.md").read_text("utf-8").partition(WRITTEN)[0]
    rows = [f"| `{old}` | `{new}` |" for old, new in KEYS.items()]
    rows += [f"| `{key}: {old}` | `{key}: {new}` |" for key, values in VALUES.items() for old, new in values.items()]
    rows += [f"| `{old}` | gone: {why} |" for old, why in REMOVED.items()]
    modules = [f"| `{old}` | `{new}` |" for old, new in MODULES.items()]
    return "\n".join(
        [prose + WRITTEN, "| old setting | new |\n|---|---|", *rows, "\n| old module | new |\n|---|---|", *modules, ""]
    )


PAGES = {
    "upgrade.md": upgrade_page,
    "settings.md": settings_page,
    "commands.md": commands_page,
    "metrics.md": metrics_page,
}


def main(check: bool) -> int:
    """Write the pages, or list those that differ."""
    stale = []
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if stale:
        print(f"docs: {', '.join(stale)} {'differ: run python docs/scripts/reference.py' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
