"""Profiles: overlays of params.yaml for other worlds and sizes, applied with the comments kept."""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Iterable, Mapping, MutableMapping
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from yaml import safe_load

from components.core.discovery import choose
from components.core.errors import InputError
from components.core.files import atomic_file
from components.core.settings import PARAMS, Settings, load_settings

if TYPE_CHECKING:
    from ruamel.yaml import YAML

PROFILES = Path("infra/profiles")


def profile_names(folder: Path = PROFILES) -> list[str]:
    """The names of all profiles, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def profile_text(name: str, folder: Path = PROFILES) -> str:
    """A profile's file.

    Raises:
        InputError: there is no such profile.
    """
    return (folder / f"{choose(profile_names(folder), name, 'profile')}.yaml").read_text("utf-8")


def description(name: str, folder: Path = PROFILES) -> str:
    """The first sentence of the comment that a profile begins with; empty where it begins with none."""
    lines = takewhile(lambda line: line.startswith("#"), profile_text(name, folder).splitlines())
    comment = " ".join(line.lstrip("# ").rstrip() for line in lines)
    return re.split(r"(?<=\.) (?=[A-Z])", comment, maxsplit=1)[0]


def lies_over(name: str, folder: Path = PROFILES) -> str:
    """The profile that is laid over params.yaml before this one; empty where none is."""
    found = re.search(r"^over: *([\w-]+)", profile_text(name, folder), re.MULTILINE)
    return found[1] if found else ""


def overlaid(name: str, params: Path = PARAMS, folder: Path = PROFILES) -> str:
    """The text of params.yaml with profile `name` laid over it; nothing is written.

    The profile that its key `over` names is laid over params.yaml before it.

    Raises:
        InputError: there is no such profile, or the result is no valid params.yaml.
    """
    load_settings(params)
    choose(profile_names(folder), name, "profile")
    return _laid_over(_overlays(folder, name), str(folder / f"{name}.yaml"), params)


def laid_over(overlay: Mapping[str, Any], what: str, params: Path = PARAMS) -> str:
    """The text of params.yaml with blocks laid over it, with its comments; nothing is written.

    Args:
        what: what the blocks are, for messages.

    Raises:
        InputError: the result is no valid params.yaml.
    """
    load_settings(params)
    return _laid_over([overlay], what, params)


def _laid_over(overlays: Iterable[Mapping[str, Any]], what: str, params: Path) -> str:
    yaml = _yaml()
    merged = yaml.load(params.read_text("utf-8"))
    for overlay in overlays:
        merge(merged, overlay)
    stream = io.StringIO()
    yaml.dump(merged, stream)
    _check(stream.getvalue(), what)
    return stream.getvalue()


def settings_with(name: str) -> Settings:
    """The settings of params.yaml with profile `name` laid over it; nothing is written.

    Raises:
        InputError: as `overlaid`.
    """
    return Settings.model_validate(safe_load(overlaid(name)))


def _yaml() -> YAML:
    """Reads and writes YAML in the style of params.yaml, comments and quotes kept."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _overlays(folder: Path, name: str) -> list[Mapping[str, Any]]:
    """A profile's blocks, after those of the profile that its key `over` names."""
    from ruamel.yaml import YAMLError

    path = folder / f"{name}.yaml"
    try:
        # As it is written, so that what is new in params.yaml looks there as it does here.
        overlay = _yaml().load(path.read_text("utf-8")) or {}
    except (YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no valid YAML: {error}") from None
    if not isinstance(overlay, MutableMapping):
        raise InputError(f"{path} must hold blocks of params.yaml: see the other profiles")
    under = overlay.pop("over", None)
    others = [other for other in profile_names(folder) if other != name]
    return [*(_overlays(folder, choose(others, under, f"{path}: over:")) if under else []), overlay]


def merge(target: MutableMapping[str, Any], overlay: Mapping[str, Any]) -> None:
    """Lay `overlay` over `target` in place: blocks are merged key by key, everything else is replaced."""
    for key, value in overlay.items():
        if isinstance(value, Mapping) and isinstance(target.get(key), MutableMapping):
            merge(target[key], value)
        elif isinstance(value, list) and isinstance(target.get(key), list):
            # In place, because the list carries how it is written and the blank line behind it.
            target[key].clear()
            target[key].extend(value)
        elif key in target:
            target[key] = value
        else:
            _append(target, key, value)


def _append(target: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Add a key at the end of a block; the blank line or comment that followed the block still follows it."""
    comments = getattr(getattr(target, "ca", None), "items", {})
    after = comments.pop(list(target)[-1], None) if target else None
    target[key] = value
    if after is not None:
        comments[key] = after


def difference(text: str, params: Path = PARAMS) -> str:
    """What would change in params.yaml, as a unified diff; empty when nothing would."""
    before = params.read_text("utf-8").splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, text.splitlines(keepends=True), str(params), f"{params} (new)", n=1))


def write(text: str, params: Path = PARAMS) -> None:
    """Replace params.yaml, whole or not at all."""
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
