"""A tracking store for each module of these tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tests of a module."""
    return tmp_path_factory.mktemp("tracking")


@pytest.fixture
def project(store: Path, track_in: Callable[[Path], None]) -> None:
    """The current folder is the store's, and runs go there."""
    track_in(store)
