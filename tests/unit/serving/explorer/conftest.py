from __future__ import annotations

from pathlib import Path

import pytest

from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from components.serving.explorer.server import Explored
from tests.support.evaluation_fixtures import folders, make_settings, stub, vectors  # noqa: F401
from tests.support.exploring import make_explored


@pytest.fixture
def explored(tmp_path: Path, settings: Settings, tiny_encoder: Encoder) -> Explored:
    return make_explored(tmp_path, settings, tiny_encoder)
