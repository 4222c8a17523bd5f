"""Checks the entries of `methods` in params.yaml: their keys, their tables, and whether an index stays valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.core.settings import Settings
from components.core.system.errors import InputError, prefixed_errors
from components.core.tables.folders import PAIRS
from components.core.tables.training_columns import ALIKE, PREPARED, holders_of
from components.training.methods.registry import find_entry


def check(settings: Settings, entries: Sequence[str] | None = None) -> None:
    """Raise `InputError` for the first fault in `entries` of `methods`, all if None; other names are skipped."""
    chosen = settings.methods if entries is None else [name for name in entries if name in settings.methods]
    # Validated tables, and those that `prepare` may write.
    tables = {name: PAIRS / f"{name}.parquet" for name in PREPARED}
    tables |= {name: settings.validation.file(name) for name in settings.validation.tables}
    for name in chosen:
        method = find_entry(settings.methods, name).method
        with prefixed_errors(f"params.yaml: methods.{name}"):
            needed = holders_of(method.needs)
        _check_reads(name, settings.methods[name].get("train_data"), needed, tables)
    _check_index(settings, entries or settings.compare_encoders)


def _check_index(settings: Settings, encoders: Sequence[str]) -> None:
    """Refuse encoders that would make the vectors of an index useless, if these must be kept."""
    for name in encoders if settings.train.keep_index else ():
        if name in settings.methods:
            tower = find_entry(settings.methods, name).method.settings.image_tower
            if tower != "frozen":
                raise InputError(
                    f"params.yaml: methods.{name} has a {tower} image tower, which makes the vectors of an index "
                    f"useless: remove '{name}' from compare_encoders, or set train.keep_index to false"
                )


def _check_reads(entry: str, reads: Any, needed: Sequence[str], tables: Mapping[str, Path]) -> None:
    key = f"params.yaml: methods.{entry}.train_data"
    for name in needed:
        if name not in tables:
            raise InputError(f"{key}: the method needs table '{name}': add it to validate.tables, and its tasks")
    # `train_data` may be another table with the same columns.
    alike = {name: [str(tables[other]) for other in ALIKE.get(name, ()) if other in tables] for name in needed}
    files = [Path(reads) if reads in alike[name] else tables[name] for name in needed]
    if not isinstance(reads, str):
        expected = " and ".join(map(str, files or [PAIRS / "train.parquet"]))
        raise InputError(f"{key} is missing: name {expected}, or a folder above")
    if outside := " and ".join(str(file) for file in files if not file.is_relative_to(reads)):
        raise InputError(f"{key}: {reads} does not contain {outside}, which the method needs: name a folder above")
