"""Fixtures that several folders share."""

from __future__ import annotations

from tests.support import own_stores  # isort: split

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from PIL import Image

from components.core.settings import Settings
from components.core.tracking import PARENT_RUN, STORE, make_client
from components.encoders.adapter.encoder import Encoder
from tests.support.params import every_method
from tests.support.shard_making import encoded

pytest_plugins = [
    "tests.integration.postgres",
    "tests.support.evaluation_fixtures",
    "tests.support.language_folders",
]

REPO = Path(__file__).parents[1]

TINY: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


@pytest.fixture(autouse=True)
def _users_stores_stay() -> Iterator[None]:
    """Fail a test that would write into a store of the user's, also where the product handles the error."""
    own_stores.refused.clear()
    yield
    assert not own_stores.refused, f"this test writes to {own_stores.refused}"


@pytest.fixture
def tiny_encoder() -> Encoder:
    """A real open_clip CLIP, small enough for unit tests, with fixed random weights."""
    torch.manual_seed(0)
    return Encoder.create("tiny", "tiny", TINY, "test")


@pytest.fixture
def raw_params(tmp_path: Path) -> dict[str, Any]:
    """The repository's settings with every method as plain data, which a test may change."""
    raw = every_method()
    for stage in ("prepare", "embed"):
        raw[stage]["state"] = str(tmp_path / "state" / stage)
    return raw


@pytest.fixture
def settings(raw_params: dict[str, Any]) -> Settings:
    """The repository's own settings with every method."""
    return Settings.model_validate(raw_params)


@pytest.fixture
def png() -> Any:
    """Makes a PNG of one colour."""

    return lambda colour, size=16: encoded(Image.new("RGB", (size, size), colour))


@pytest.fixture(scope="session")
def mlflow_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database whose tables exist: making them takes seconds."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / STORE / 'mlflow.db'}")
        make_client().search_experiments()
    return folder / STORE / "mlflow.db"


@pytest.fixture
def track_in(mlflow_database: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Changes to a folder, with an MLflow store of its own for runs."""

    def track(folder: Path) -> None:
        monkeypatch.chdir(folder)
        # MLflow keeps one connection per address for the life of the process, so tests must not share a relative one.
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / STORE / 'mlflow.db'}")
        monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        for name in (PARENT_RUN, "LOCAL_RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        if not (STORE / "mlflow.db").exists():
            STORE.mkdir(exist_ok=True)
            shutil.copy(mlflow_database, STORE / "mlflow.db")

    return track


def pytest_configure() -> None:
    """Hypothesis must not judge time, and tiny models are fastest on one thread."""
    torch.set_num_threads(1)
    hypothesis.settings.register_profile("repo", deadline=None)
    hypothesis.settings.load_profile("repo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests outside of the unit and pipeline tests are slow; unit tests come first, so that most faults show soon."""
    for item in items:
        if not any(item.path.is_relative_to(REPO / "tests" / fast) for fast in ("unit", "pipeline")):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: not item.path.is_relative_to(REPO / "tests" / "unit"))
