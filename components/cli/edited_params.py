"""Edits params.yaml as a text, with its comments: lays profiles and values over it, compares and replaces it."""

from __future__ import annotations

import difflib
import io
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from copy import deepcopy
from itertools import takewhile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError as StyleError
from yaml import YAMLError

from components.core.settings import PARAMS, load_settings
from components.core.settings.block import explain_yaml, read_yaml
from components.core.system.errors import InputError
from components.core.system.profiles import (
    PROFILES,
    SHIPPED,
    blocks_of,
    fitting_settings,
    merge,
    overlays_of,
    profile_files,
    profile_text,
)
from components.core.tables.files import atomic_file, content_hash

BEFORE = Path("params-before-profiles.yaml")
"""Copy of params.yaml from before the first applied profile, in state/, for folders without a commit of params.yaml."""
APPLIED = Path("params-applied.yaml")
"""Copy, in state/, of the params.yaml that the last `cliptune profile apply` wrote."""
_NAMED = 6
"""Keys that a notice names; it counts more of them by block."""


def description(name: str, folder: Path = PROFILES) -> str:
    """The first sentence of the comment at the top of a profile; empty without a comment."""
    lines = takewhile(lambda line: line.startswith("#"), profile_text(name, folder).splitlines())
    comment = " ".join(line.lstrip("# ").rstrip() for line in lines)
    return re.split(r"(?<=\.) (?=[A-Z])", comment, maxsplit=1)[0]


def base_profile(name: str, folder: Path = PROFILES) -> str:
    """The profile that this one extends; empty if it extends none."""
    match = re.search(r"^over: *([\w-]+)", profile_text(name, folder), re.MULTILINE)
    return match[1] if match else ""


def overlaid(
    name: str,
    params: Path = PARAMS,
    folder: Path = PROFILES,
    more: Mapping[str, Any] | None = None,
    *,
    keep_models: bool = False,
) -> str:
    """The text of params.yaml with profile `name`, and then `more`, laid over it; nothing is written.

    For the values that a profile replaces, and for `keep_models`, see `components.core.system.profiles.overlays_of`.
    """
    # Profiles are read with their style, so that new keys look the same in params.yaml.
    overlays = overlays_of(name, params, folder, keep_models=keep_models, read=_styled)
    return laid_over([*overlays, more or {}], str(profile_files(folder)[name]), params)


def assigned(values: Iterable[str]) -> dict[str, Any]:
    """The blocks of texts such as `study.seeds=[1]`; raises `InputError` for one that is not a key and a YAML value."""
    blocks: dict[str, Any] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not all(names := key.strip().split(".")):
            raise InputError(f"'{text}' is not KEY=VALUE, such as study.seeds=[1]")
        try:
            found = read_yaml(value)
        except YAMLError as error:
            raise InputError(f"'{text}': {explain_yaml(error)}") from None
        for name in reversed(names):
            found = {name: found}
        merge(blocks, found)
    return blocks


def notices(
    name: str, text: str, params: Path = PARAMS, folder: Path = PROFILES, more: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Notices about the text of `overlaid`: keys that stay as in params.yaml, and values of other profiles in it."""
    settings, wanted = load_settings(params), dict[str, Any]()
    for overlay in [*blocks_of(name, folder), more or {}]:
        merge(wanted, overlay)
    dataset = settings.dataset.name
    kept = list(_differing(read_yaml(text), wanted))
    if models := [key for key in kept if key.startswith(("synthesize.llms", "synthesize.default_llm"))]:
        block = settings.synthesize
        yield f"language models stay: llms {', '.join(block.llms)}; default_llm {block.default_llm}"
    if kept := [key for key in kept if key not in models]:
        blocks = Counter(key.partition(".")[0] for key in kept)
        named = kept if len(kept) <= _NAMED else (f"{block} ({count} values)" for block, count in blocks.items())
        yield f"kept, although profile '{name}' has other values: {', '.join(named)}"
    if dataset not in (SHIPPED, wanted.get("dataset", {}).get("name", dataset)):
        yield (
            f"params.yaml was of dataset '{dataset}', whose values that profile '{name}' does not set remain: "
            f"`cliptune profile apply {name}` without --over removes them"
        )


def _differing(block: Mapping[str, Any], wanted: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The dotted keys whose value in `block` is not the wanted one."""
    for key, value in wanted.items():
        current = block.get(key)
        if isinstance(value, Mapping) and isinstance(current, Mapping):
            yield from _differing(current, value, f"{above}{key}.")
        elif current != value:
            yield f"{above}{key}"


def laid_over(overlays: Iterable[Mapping[str, Any]], subject: str, params: Path = PARAMS) -> str:
    """The text of params.yaml with blocks laid over it, with its comments; nothing is written.

    `subject` begins the message about a result that is not valid.
    """
    load_settings(params)
    merged = _styled(params.read_text("utf-8"), str(params))
    for overlay in overlays:
        _lay(merged, overlay)
    stream = io.StringIO()
    _yaml().dump(merged, stream)
    text = _without_old_comments(stream.getvalue(), read_yaml(params.read_text("utf-8")))
    fitting_settings(text, subject)
    return text


def _without_old_comments(text: str, before: Mapping[str, Any]) -> str:
    """Drop the comment lines directly above each key whose value replaced another; blocks keep theirs."""
    lines, dropped = text.splitlines(keepends=True), set[int]()
    for place in _replaced(_styled(text, "the result"), before):
        above = place - 1
        while above >= 0 and lines[above].lstrip().startswith("#"):
            dropped.add(above)
            above -= 1
    return "".join(line for number, line in enumerate(lines) if number not in dropped)


def _replaced(block: Any, before: Mapping[str, Any]) -> Iterator[int]:
    """The lines of keys below the top level whose value differs from the one before."""
    for key, old in before.items():
        new = block.get(key)
        for inner, value in old.items() if isinstance(old, Mapping) and isinstance(new, Mapping) else ():
            if inner not in new or new[inner] == value:
                continue
            if block.lc.key(key)[0] == new.lc.key(inner)[0]:
                continue  # on the block's own line, whose comment is the block's
            if isinstance(value, Mapping) and isinstance(new[inner], Mapping) and not new[inner].fa.flow_style():
                yield from _replaced(new, {inner: value})
            else:
                yield new.lc.key(inner)[0]


def changed_keys(text: str, params: Path = PARAMS) -> Counter[str]:
    """Top-level key -> the number of values below it that a new text of params.yaml changes, adds or removes."""
    try:
        old = read_yaml(params.read_text("utf-8"))
    except YAMLError:
        old = {}
    new = read_yaml(text)
    keys = dict.fromkeys([*_differing(old, new), *_differing(new, old)])
    return Counter(key.partition(".")[0] for key in keys)


def start_text(params: Path = PARAMS, state: Path = Path("state")) -> str:
    """The text that profiles start from: the committed params.yaml, or without a commit the first profile's start."""
    command = ["git", "show", f"HEAD:./{params.name}"]
    with suppress(OSError):
        done = subprocess.run(command, cwd=params.absolute().parent, capture_output=True, check=False)
        if done.returncode == 0:
            return done.stdout.decode("utf-8")
    kept = state / BEFORE
    return (kept if kept.exists() else params).read_text("utf-8")


def replace(text: str, *, applied: bool, over: bool = False, state: Path = Path("state")) -> Path | None:
    """Write params.yaml, `applied` from a profile; with `over` the text includes the edits of params.yaml.

    Returns the path of a copy of the old params.yaml if it had edits that `text`, a commit and a profile do not have.
    """
    before, start, record = PARAMS.read_text("utf-8"), start_text(state=state), state / APPLIED
    known = {start, text} | ({record.read_text("utf-8")} if record.exists() else set())
    is_edited = before not in known
    copy = state / f"params-edited-{content_hash(before)[:8]}.yaml" if is_edited and not over else None
    if copy:
        write(before, copy)
    if applied:
        write(start, state / BEFORE)
        if not (is_edited and over):
            write(text, record)
    write(text)
    if not applied:
        for path in (record, state / BEFORE):
            path.unlink(missing_ok=True)
    return copy


def difference(text: str, params: Path = PARAMS) -> str:
    """The changes of params.yaml as a unified diff; empty without changes."""
    before = params.read_text("utf-8").splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, text.splitlines(keepends=True), str(params), f"{params} (new)", n=1))


def write(text: str, params: Path = PARAMS) -> None:
    """Replace params.yaml atomically."""
    with atomic_file(params) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _yaml() -> YAML:
    """A reader and writer of YAML in the style of params.yaml that keeps comments and quotes."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _styled(text: str, subject: str) -> Any:
    """A document with its comments and quotes; this reader refuses some texts that `read_yaml` takes."""
    try:
        return _yaml().load(text)
    except StyleError as error:
        raise InputError(f"{subject} is not valid YAML: {explain_yaml(error)}") from None


def _lay(target: MutableMapping[str, Any], overlay: Mapping[str, Any]) -> None:
    """As `merge` of a styled document, which keeps its comments, and its style where values are the same."""
    for key, value in overlay.items():
        if key in target and target[key] == value:
            continue
        if isinstance(value, Mapping) and isinstance(target.get(key), MutableMapping):
            _lay(target[key], value)
        elif isinstance(value, list) and isinstance(target.get(key), list):
            _refill(target[key], value)
        elif key in target:
            target[key] = deepcopy(value)
        else:
            _append(target, key, deepcopy(value))


def _refill(target: list[Any], value: list[Any]) -> None:
    """Replace a list's entries in place: the list carries its style, and its last entry the comment after it."""
    comments = getattr(getattr(target, "ca", None), "items", {})
    after = comments.pop(len(target) - 1, None)
    target.clear()
    target.extend(deepcopy(value))
    if after is not None and target:
        comments[len(target) - 1] = after


def _append(target: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Add a key at the end of a block, before the blank line or comment that follows the block."""
    after = None
    if target:
        comments, last = _end(target, list(target)[-1])
        after = comments.pop(last, None)
    target[key] = _commented(value) if after is not None else value
    if after is not None:
        comments, last = _end(target, key)
        comments[last] = after


def _end(block: Any, key: Any) -> tuple[dict[Any, Any], Any]:
    """The comments of the innermost block at the end of `block[key]`, and the last key of that block."""
    value = block[key]
    if isinstance(value, CommentedMap) and value and not value.fa.flow_style():
        return _end(value, list(value)[-1])
    return getattr(getattr(block, "ca", None), "items", {}), key


def _commented(value: Any) -> Any:
    """The value with blocks that can carry comments."""
    if type(value) is not dict:
        return value
    return CommentedMap({key: _commented(inner) for key, inner in value.items()})
