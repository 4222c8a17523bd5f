"""Readers of published test sets. Each file exports `TEST_SETS`, the sets whose content training must not contain.

Those of research (`research.test_sets`) are found by name and never imported elsewhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from components.core.system.discovery import file_names, names_in
from components.core.system.errors import InputError
from components.data.test_sets.files import Tested, TestSet, TestSetFiles

_RESEARCH = "research.test_sets"


def all_test_sets() -> list[TestSet]:
    """Every published test set with a reader, sorted by name."""
    modules = [f"{__name__}.{name}" for name in file_names(__path__)]
    modules += [f"{_RESEARCH}.{name}" for name in names_in(_RESEARCH)]
    sets = (one for module in modules for one in importlib.import_module(module).TEST_SETS)
    return sorted(sets, key=lambda one: one.name)


def load_test_sets(data: Path) -> Iterator[tuple[str, Tested | str]]:
    """Name and content of each test set in the folder of `cliptune evaluate --data-dir`, or why it cannot be read.

    Incomplete sets are read as far as possible, because they can be scored with `--allow-partial`.
    """
    if not data.is_dir():
        raise InputError(
            f"{data} does not exist: put the published test sets there, or set prepare.heldout_testsets_dir to null"
        )
    for test_set in all_test_sets():
        folder = data / test_set.folder
        # Test sets may share a folder, so a folder alone does not mean that the set is there.
        if not any((folder / file.path).exists() for file in test_set.files):
            continue
        try:
            found: Tested | str = test_set.read(TestSetFiles(folder, allow_partial=True))
        except (InputError, OSError) as fault:
            found = " ".join(str(fault).split())
        yield test_set.name, found
