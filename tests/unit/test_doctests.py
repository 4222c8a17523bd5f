"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
MODULES = (
    "components.captions.prompting.parsing",
    "components.captions.generating.store",
    "components.core.system.discovery",
    "components.core.compute.metrics",
    "components.core.settings",
    "components.core.tables.table",
    "components.core.text",
    "components.training.methods.registry",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    found = doctest.testmod(
        importlib.import_module(name),
        # Examples that write say `folder`.
        extraglobs={"folder": tmp_path},
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert found.attempted > 0
    assert found.failed == 0
