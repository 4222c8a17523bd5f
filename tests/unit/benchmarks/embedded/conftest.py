"""Four images whose features are the axes, and an encoder with a given vector for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from components.benchmarks.scoring.encoding.context import EmbeddedContext, EncoderUnderTest
from components.evaluation.results import Folders


@pytest.fixture
def context(stub: Any, vectors: dict[str, Sequence[float]], folders: Folders) -> EmbeddedContext:
    return EmbeddedContext(
        EncoderUnderTest("stub", stub(vectors), ""),
        folders.evaluation,
        (1, 2),
        ["a", "b", "c", "d"],
        np.eye(4, dtype=np.float32),
    )
