"""Shards of work, as a command line names them."""

from __future__ import annotations

import pytest

from components.core.system.errors import InputError
from components.core.tables.work_shard import Shard


@pytest.mark.parametrize("text", ["3/3", "1", "a/b", "-1/4", "1/"])
def test_what_is_no_shard_is_named(text: str) -> None:
    with pytest.raises(InputError, match="is not a shard: give for example 0/4"):
        Shard.parse(text)


def test_a_shard_is_written_as_it_is_read() -> None:
    assert Shard.parse("1/4") == Shard(1, 4)
    assert str(Shard(1, 4)) == "1/4"
