"""Shards of work, as a command line names them."""

from __future__ import annotations

import pytest

from components.core.system.errors import InputError
from components.core.tables.work_shard import Shard


def test_a_shard_is_read_as_it_is_written_and_other_texts_are_refused() -> None:
    assert Shard.parse("1/4") == Shard(1, 4)
    assert str(Shard(1, 4)) == "1/4"
    for text in ("3/3", "1", "a/b", "-1/4", "1/"):
        with pytest.raises(InputError, match="is not a shard: give for example 0/4"):
            Shard.parse(text)
