"""Steps that tests of sources share: settings, pairs, refusals, damage, and the tables of stage `prepare`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import CAPTION_QUERIES, PAIRS, SPLITS
from components.data import prepare
from components.data.source import Pair, Unusable
from components.data.sources import find_source

Damage = Callable[[Path], object]


def prepare_settings(raw_params: dict[str, Any], **changes: Any) -> Settings:
    """The settings with other values in block `prepare`."""
    return Settings.model_validate(raw_params | {"prepare": raw_params["prepare"] | {"processes": 1} | changes})


def pairs_of(settings: Settings, unusable: list[Unusable] | None = None) -> list[Pair]:
    """The pairs of the settings' source."""
    return list(find_source(settings.prepare.source).usable(settings, [] if unusable is None else unusable))


def assert_refused(settings: Settings, message: str) -> None:
    """The settings' source is refused in one line."""
    with pytest.raises(InputError, match=message) as caught:
        pairs_of(settings)
    assert "\n" not in str(caught.value)


def prepared(settings: Settings, home: Path) -> dict[str, list[dict[str, Any]]]:
    """Run the stage; returns the rows of pairs by split."""
    prepare.run(settings, home / "pairs", home / "evaluation")
    return {split: PAIRS.read(home / "pairs" / f"{split}.parquet").to_pylist() for split in SPLITS}


def caption_queries(home: Path) -> list[dict[str, Any]]:
    """The queries that `prepared` wrote."""
    rows: list[dict[str, Any]] = CAPTION_QUERIES.read(home / "evaluation" / "caption_queries.parquet").to_pylist()
    return rows


def without(name: str) -> Damage:
    """Removes a file."""
    return lambda folder: (folder / name).unlink()


def holding(name: str, content: str | bytes) -> Damage:
    """Gives a file another content."""
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
