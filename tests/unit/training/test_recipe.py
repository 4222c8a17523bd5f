"""The recipe: the measured and published points, and values between them that never jump."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from components.training.recipe import POINTS, recipe


def test_points_are_met_and_continue_beyond() -> None:
    for rows, (lr, batch, epochs) in POINTS.items():
        found = recipe(rows)
        assert (found.lr, found.batch_size, found.epochs) == (lr, 1 << (batch.bit_length() - 1), epochs)
    assert (recipe(10**9).lr, recipe(10**9).epochs) == (5e-7, 1)
    assert (recipe(100).lr, recipe(100).batch_size) == (POINTS[1_000][0], 16)


@given(st.integers(1, 10**8))
def test_an_epoch_has_steps_and_the_warmup_fits(rows: int) -> None:
    found = recipe(rows)
    assert found.batch_size >= 2
    assert rows < 8 or rows // found.batch_size >= 4
    assert found.warmup_steps < max(1, rows // found.batch_size) * found.epochs
    assert 5e-7 <= found.lr <= max(lr for lr, *_ in POINTS.values())
