"""Fixtures that several rooms share."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from PIL import Image

from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from tests.support.params import every_method

pytest_plugins = ["tests.integration.postgres", "tests.integration.vllm_server"]

REPO = Path(__file__).parents[1]

TINY: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


@pytest.fixture
def tiny_encoder() -> Encoder:
    """A real open_clip CLIP, small enough for unit tests, with fixed random weights."""
    torch.manual_seed(0)
    return Encoder.create("tiny", "tiny", TINY, "test")


@pytest.fixture
def raw_params() -> dict[str, Any]:
    """The repository's settings with every method as plain data, to be changed by a test."""
    return every_method()


@pytest.fixture
def settings(raw_params: dict[str, Any]) -> Settings:
    """The repository's own settings with every method."""
    return Settings.model_validate(raw_params)


@pytest.fixture
def png() -> Any:
    """Makes a PNG of one colour."""

    def make(colour: tuple[int, int, int], size: int = 16) -> bytes:
        buffer = io.BytesIO()
        Image.new("RGB", (size, size), colour).save(buffer, format="PNG")
        return buffer.getvalue()

    return make


def pytest_configure() -> None:
    """Hypothesis must not judge time, and tiny models are fastest on one thread."""
    torch.set_num_threads(1)
    hypothesis.settings.register_profile("repo", deadline=None)
    hypothesis.settings.load_profile("repo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unit tests come first, so that most faults show in the first minutes."""
    items.sort(key=lambda item: not item.path.is_relative_to(REPO / "tests" / "unit"))
