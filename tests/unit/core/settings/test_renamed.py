"""Settings of an earlier version are refused, and the message has their new names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.settings import load_settings
from components.core.settings.renamed import KEYS, VALUES
from components.core.system.errors import InputError


def _with(raw: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *blocks, last = ["mine" if part == "*" else part for part in path.split(".")]
    block = raw
    for name in blocks:
        block = block.setdefault(name, {})
    block[last] = value
    return raw


def test_every_old_key_and_value_names_the_new_one(tmp_path: Path) -> None:
    text, path = (Path(__file__).parents[4] / "params.yaml").read_text("utf-8"), tmp_path / "params.yaml"
    cases: list[tuple[str, Any, str]] = [(old, 1, f"'{old}' is now '{new}'") for old, new in KEYS.items()]
    cases += [(key, old, f"'{old}' is now '{new}'") for key, values in VALUES.items() for old, new in values.items()]
    for key, value, message in cases:
        path.write_text(yaml.safe_dump(_with(yaml.safe_load(text), key, value)), "utf-8")
        with pytest.raises(InputError) as caught:
            load_settings(path)
        assert message.replace("*", "mine") in str(caught.value)
        assert str(path) in str(caught.value)
