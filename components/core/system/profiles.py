"""Profiles: overlays of params.yaml for other data sets and sizes; `components.cli.edited_params` writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from components.core.settings import PARAMS, Settings, load_settings, parsed_settings
from components.core.settings.block import explain_yaml, read_yaml
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.system.renamed import upgraded

PROFILES = Path("infra/profiles")
_OF_PAPERS = Path("research/profiles")
"""Profiles of the papers' own data and settings, in the same project."""
SHIPPED = "synthetic"
"""The dataset of the shipped params.yaml, and of profiles without one."""
_FITTED = {
    "methods": ("lr", "batch_size", "epochs", "warmup_steps"),
    "tasks": ("max_captions", "pairs"),
}
"""Block -> keys of its entries whose values fit one dataset."""


def profile_names(folder: Path = PROFILES) -> list[str]:
    """The names of all profiles, sorted."""
    return sorted(profile_files(folder))


def profile_files(folder: Path = PROFILES) -> dict[str, Path]:
    """The file of each profile: those of `folder`, and of the papers in the project of such a folder."""
    places = folder.parents[1] / _OF_PAPERS, folder
    return {path.stem: path for place in places for path in place.glob("*.yaml")}


def profile_text(name: str, folder: Path = PROFILES) -> str:
    """A profile's file; raises `InputError` if the profile does not exist."""
    return profile_files(folder)[choose(profile_names(folder), name, "profile")].read_text("utf-8")


def fits_any_dataset(name: str, folder: Path = PROFILES) -> bool:
    """Whether the profile's values, models included, replace those of a profile for real data that it is laid over."""
    return re.search(r"^any_dataset: true$", profile_text(name, folder), re.MULTILINE) is not None


def settings_with(name: str | None, more: Mapping[str, Any] | None = None) -> Settings:
    """The settings of params.yaml with profile `name`, if any, laid over it, and `more` over that."""
    subject = "the profile" if name is None else str(profile_files().get(name, PROFILES / f"{name}.yaml"))
    load_settings()
    merged = read_yaml(PARAMS.read_text("utf-8"))
    for overlay in [*(overlays_of(name) if name is not None else []), more or {}]:
        merge(merged, overlay)
    return fitting_settings(yaml.safe_dump(merged, sort_keys=False), subject)


def fitting_settings(text: str, subject: str) -> Settings:
    """The settings of a new text of params.yaml; `subject` begins the message about one that is not valid."""
    if said := upgraded(text)[1]:
        raise InputError(f"{subject} does not fit: {said[0]}; `cliptune upgrade` writes the new names")
    return parsed_settings(text, f"{subject} does not fit")


def overlays_of(
    name: str,
    params: Path = PARAMS,
    folder: Path = PROFILES,
    *,
    keep_models: bool = False,
    read: Callable[[str, str], Any] = lambda text, _subject: read_yaml(text),
) -> list[Mapping[str, Any]]:
    """The blocks that profile `name` lays over params.yaml, in this order: first those of its key `over`.

    If params.yaml is of another dataset than the shipped one, a profile without a dataset adds keys and replaces no
    value. It then leaves out settings that fit its own dataset alone: language models, numbers of captions, learning
    rates. `keep_models` leaves out the language models of any profile; a task whose model is missing then uses
    `default_llm`. A profile with the key `any_dataset` replaces all of its values, but needs another dataset than the
    shipped one.

    Args:
        read: the content of a valid YAML text; its second argument names the text in messages.
    """
    choose(profile_names(folder), name, "profile")
    settings, overlays = load_settings(params), blocks_of(name, folder, read)
    fits_any = fits_any_dataset(name, folder)
    if fits_any and settings.dataset.name == SHIPPED:
        raise InputError(
            f"profile '{name}' is not for the {SHIPPED} dataset: apply one for real data, such as laion, and then "
            f"`cliptune profile apply {name} --over`"
        )
    is_foreign = settings.dataset.name != SHIPPED and not any("dataset" in overlay for overlay in overlays)
    if fits_any or not (is_foreign or keep_models):
        return overlays
    for overlay in overlays:
        _leave_out(overlay, settings.synthesize.llms, _FITTED if is_foreign else {})
    if not is_foreign:
        return overlays
    added: dict[str, Any] = {}
    for overlay in [*overlays, read_yaml(params.read_text("utf-8"))]:
        merge(added, overlay)
    return [added]


def _leave_out(overlay: Mapping[str, Any], llms: Mapping[str, Any], fitted: Mapping[str, tuple[str, ...]]) -> None:
    """Remove the models from a profile's blocks, and the keys `fitted` from the entries of methods and tasks."""
    synthesize = overlay.get("synthesize", {})
    tasks = synthesize.get("tasks", {})
    for key in ("llms", "default_llm"):
        synthesize.pop(key, None)
    for entry, key in [*((task, "llm") for task in tasks.values()), (overlay.get("test_set", {}), "llm"),
                       (overlay.get("test_set", {}), "judge_llm")]:  # fmt: skip
        if entry.get(key) not in llms:
            entry.pop(key, None)
    for entries, block in ((tasks, "tasks"), (overlay.get("methods", {}), "methods")):
        for entry in entries.values():
            for key in fitted.get(block, ()):
                entry.pop(key, None)


def blocks_of(
    name: str, folder: Path = PROFILES, read: Callable[[str, str], Any] = lambda text, _subject: read_yaml(text)
) -> list[Mapping[str, Any]]:
    """A profile's blocks, after those of the profile that it extends; for `read` see `overlays_of`."""
    path = profile_files(folder)[name]
    try:
        text = path.read_text("utf-8")
        read_yaml(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid YAML: {explain_yaml(error)}") from None
    overlay = read(text, str(path)) or {}
    if not isinstance(overlay, MutableMapping):
        raise InputError(f"{path} must hold blocks of params.yaml: see the other profiles")
    under, _ = overlay.pop("over", None), overlay.pop("any_dataset", None)
    others = [other for other in profile_names(folder) if other != name]
    return [*(blocks_of(choose(others, under, f"{path}: over:"), folder, read) if under else []), overlay]


def merge(target: MutableMapping[str, Any], overlay: Mapping[str, Any]) -> None:
    """Lay copies of the values of `overlay` over `target` in place: blocks are merged, everything else is replaced."""
    for key, value in overlay.items():
        if isinstance(value, Mapping) and isinstance(target.get(key), MutableMapping):
            merge(target[key], value)
        else:
            target[key] = deepcopy(value)
