"""A project folder with evaluated encoders and a store of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from tests.support.registry_project import Project, make_project


@pytest.fixture
def project(tmp_path: Path, track_in: Callable[[Path], None], settings: Settings, tiny_encoder: Encoder) -> Project:
    """A project folder, the current one, with a base encoder that scores 0.4."""
    track_in(tmp_path)
    return make_project(settings, tiny_encoder.sidecar.architecture)
