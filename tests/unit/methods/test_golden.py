"""Every loss has the value it had when it was written."""

from __future__ import annotations

import json

import pytest

from tests.unit.methods.examples import CASES
from tests.unit.methods.make_golden import GOLDEN, golden_losses


def test_losses_have_their_golden_values() -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))
    found = golden_losses()
    assert set(golden) == set(CASES)
    for name, losses in found.items():
        # The projection basis is made in float32.
        assert losses == pytest.approx(golden[name], abs=1e-5), name
