"""The training run that no test disturbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.train_driver import STEPS_PER_EPOCH
from tests.faults.trainers import EPOCHS, train_to_the_end


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two epochs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert train_to_the_end(folder, EPOCHS) == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    return folder
