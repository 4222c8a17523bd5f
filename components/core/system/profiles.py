"""Profiles: overlays of params.yaml for other data sets and sizes; comments stay."""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from yaml import safe_load

from components.core.settings import PARAMS, Settings, load_settings
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.tables.files import atomic_file

if TYPE_CHECKING:
    from ruamel.yaml import YAML

PROFILES = Path("infra/profiles")
SHIPPED = "synthetic"
"""The dataset of the shipped params.yaml, and of profiles without one."""


def profile_names(folder: Path = PROFILES) -> list[str]:
    """The names of all profiles, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def profile_text(name: str, folder: Path = PROFILES) -> str:
    """A profile's file; raises `InputError` if the profile does not exist."""
    return (folder / f"{choose(profile_names(folder), name, 'profile')}.yaml").read_text("utf-8")


def description(name: str, folder: Path = PROFILES) -> str:
    """The first sentence of the comment at the top of a profile; empty without a comment."""
    lines = takewhile(lambda line: line.startswith("#"), profile_text(name, folder).splitlines())
    comment = " ".join(line.lstrip("# ").rstrip() for line in lines)
    return re.split(r"(?<=\.) (?=[A-Z])", comment, maxsplit=1)[0]


def base_profile(name: str, folder: Path = PROFILES) -> str:
    """The profile that this one extends; empty if it extends none."""
    match = re.search(r"^over: *([\w-]+)", profile_text(name, folder), re.MULTILINE)
    return match[1] if match else ""


def overlaid(name: str, params: Path = PARAMS, folder: Path = PROFILES, more: Mapping[str, Any] | None = None) -> str:
    """The text of params.yaml with profile `name`, and then `more`, laid over it; nothing is written.

    The profile of its key `over` is laid over params.yaml first. If params.yaml is of another dataset than the shipped
    one, a profile without a dataset adds keys and replaces no value.

    Raises:
        InputError: the profile does not exist, or the result is not a valid params.yaml.
    """
    dataset = load_settings(params).dataset.name
    choose(profile_names(folder), name, "profile")
    overlays = _overlays(folder, name)
    if dataset != SHIPPED and not any("dataset" in overlay for overlay in overlays):
        added: dict[str, Any] = {}
        for overlay in [*overlays, safe_load(params.read_text("utf-8"))]:
            merge(added, overlay)
        overlays = [added]
    return laid_over([*overlays, more or {}], str(folder / f"{name}.yaml"), params)


def notices(name: str, text: str, params: Path = PARAMS, folder: Path = PROFILES) -> Iterator[str]:
    """Notices about the text of `overlaid`: values of the profile that it lacks, and values of other profiles in it."""
    dataset, wanted = load_settings(params).dataset.name, dict[str, Any]()
    for overlay in _overlays(folder, name):
        merge(wanted, overlay)
    if kept := list(_differing(safe_load(text), wanted)):
        keeps = f"dataset '{dataset}' keeps its own values of {', '.join(kept)}"
        yield f"profile '{name}' is for dataset '{SHIPPED}'; {keeps}"
    if dataset not in (SHIPPED, wanted.get("dataset", {}).get("name", dataset)):
        yield (
            f"params.yaml was of dataset '{dataset}', whose values that profile '{name}' does not set remain: "
            "`cliptune profile reset` before `cliptune profile apply` removes them"
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

    Raises:
        InputError: params.yaml, or the result, is not valid.
    """
    load_settings(params)
    yaml = _yaml()
    merged = yaml.load(params.read_text("utf-8"))
    for overlay in overlays:
        merge(merged, overlay)
    stream = io.StringIO()
    yaml.dump(merged, stream)
    _check(stream.getvalue(), subject)
    return stream.getvalue()


def settings_with(name: str | None, more: Mapping[str, Any] | None = None) -> Settings:
    """The settings of params.yaml with profile `name`, if any, laid over it, and `more` over that; as `overlaid`."""
    text = laid_over([more or {}], "the profile") if name is None else overlaid(name, more=more)
    return Settings.model_validate(safe_load(text))


def _yaml() -> YAML:
    """A reader and writer of YAML in the style of params.yaml that keeps comments and quotes."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _overlays(folder: Path, name: str) -> list[Mapping[str, Any]]:
    """A profile's blocks, after those of the profile that it extends."""
    from ruamel.yaml import YAMLError

    path = folder / f"{name}.yaml"
    try:
        # With its style, so that new keys look the same in params.yaml.
        overlay = _yaml().load(path.read_text("utf-8")) or {}
    except (YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(overlay, MutableMapping):
        raise InputError(f"{path} must hold blocks of params.yaml: see the other profiles")
    under = overlay.pop("over", None)
    others = [other for other in profile_names(folder) if other != name]
    return [*(_overlays(folder, choose(others, under, f"{path}: over:")) if under else []), overlay]


def merge(target: MutableMapping[str, Any], overlay: Mapping[str, Any]) -> None:
    """Lay `overlay` over `target` in place: blocks are merged key by key, everything else is replaced.

    Values are copied: the block of an anchor becomes one block for each of its names.
    """
    for key, value in overlay.items():
        if key in target and target[key] == value:
            continue
        if isinstance(value, Mapping) and isinstance(target.get(key), MutableMapping):
            merge(target[key], value)
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
    comments = getattr(getattr(target, "ca", None), "items", {})
    after = comments.pop(list(target)[-1], None) if target else None
    target[key] = value
    if after is not None:
        comments[key] = after


def difference(text: str, params: Path = PARAMS) -> str:
    """The changes of params.yaml as a unified diff; empty without changes."""
    before = params.read_text("utf-8").splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, text.splitlines(keepends=True), str(params), f"{params} (new)", n=1))


def write(text: str, params: Path = PARAMS) -> None:
    """Replace params.yaml atomically."""
    with atomic_file(params) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _check(text: str, profile: str) -> None:
    with TemporaryDirectory() as temporary:
        trial = Path(temporary) / "params.yaml"
        trial.write_text(text, encoding="utf-8")
        try:
            load_settings(trial)
        except InputError as error:
            raise InputError(f"{profile} does not fit: {str(error).removeprefix(f'{trial}: ')}") from None
