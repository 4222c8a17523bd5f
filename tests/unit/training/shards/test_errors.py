"""Lost samples are weighed by how many they stand for."""

from __future__ import annotations

import pytest

from components.core.errors import InputError
from components.training.shards.reader import Fault, RawSample
from components.training.shards.source import ENOUGH, ErrorCount


def _after(good: int, most: float = 0.05) -> ErrorCount:
    count = ErrorCount(most)
    for _ in range(good):
        count.good()
    return count


def test_the_share_is_of_all_samples_lost_ones_included() -> None:
    count = _after(1_900)
    count.lost(RawSample("0.tar", "", lost=100), Fault("broken shard"))
    assert count.reasons == {"broken shard": 100}
    with pytest.raises(InputError, match=r"101 of 2001 samples .*100 broken shard, 1 no text; .* 'k' in 1\.tar"):
        count.lost(RawSample("1.tar", "k"), Fault("no text"))


def test_the_first_samples_say_nothing_about_the_share() -> None:
    count = _after(0)
    for _ in range(ENOUGH - 1):
        count.lost(RawSample("0.tar", "k"), Fault("no image"))
    with pytest.raises(InputError):
        count.lost(RawSample("0.tar", "k"), Fault("no image"))


def test_names_are_logged_without_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    _after(0).lost(RawSample("0.tar", "a\x1b[2J\n"), Fault("unsafe name"))
    assert r"sample 'a\x1b[2J\n' is left out" in caplog.text
