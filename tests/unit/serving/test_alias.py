"""Only an alias is watched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from components.serving.alias import Alias
from components.tracking import make_client
from tests.support.serving_registry import point


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("text-encoder@champion", Alias("text-encoder", "champion")),
        ("models:/mine@challenger", Alias("mine", "challenger")),
        ("text-encoder/3", None),
        ("models/paraclip", None),
    ],
)
def test_only_an_alias_is_watched(name: str, alias: Alias | None) -> None:
    assert Alias.of(name) == alias


def test_what_it_points_at(tmp_path: Path, track_in: Callable[[Path], None]) -> None:
    track_in(tmp_path)
    alias = Alias("text-encoder", "champion")
    assert alias.version() is None
    client = make_client()
    client.create_registered_model("text-encoder")
    for _ in range(2):
        client.create_model_version("text-encoder", str(tmp_path))
    for version in ("2", "1"):
        point("champion", version)
        assert alias.version() == version
    assert Alias("text-encoder", "challenger").version() is None
