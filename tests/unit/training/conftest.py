"""Fixtures of training: a small world with a base, and a folder of small language models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from components.encoders.adapter.encoder import Encoder
from tests.conftest import TINY
from tests.support.synthetic_training import CAUSAL
from tests.support.tiny_language_model import save_tiny_language_model
from tests.support.toy_world import World, make_world, world_settings


@pytest.fixture(scope="session")
def language_model(language_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers with random weights, and a causal model below it."""
    folder = tmp_path_factory.mktemp("language-model")
    shutil.copytree(language_folders["bert"], folder, dirs_exist_ok=True)
    save_tiny_language_model(folder / CAUSAL)
    return folder


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    torch.manual_seed(0)
    return make_world(folder, Encoder.create("base", "tiny", TINY, "test"), world_settings(folder / "state"))
