"""`cliptune mix tune` refuses at its start what params.yaml could not hold at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from components.cli import app


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--from", "base", "--from", "paraclip"), "mixes.all_needs: 'base' is unknown"),
        (("--from", "paraclip", "--from", "semclip", "--name", "a/b"), "mixes.a/b would replace another encoder, or"),
        (("--from", "paraclip", "--from", "semclip", "--name", "paraclip"), "mixes.paraclip would replace another"),
        (("--from", "paraclip", "--from", "paraclip"), "give two or more encoders to mix, each once"),
        (
            (
                "--from",
                "paraclip",
            ),
            "give two or more encoders to mix, each once",
        ),
    ],
)
def test_a_mix_that_cannot_be_written_is_not_searched(
    arguments: tuple[str, ...], told: str, raw_params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(yaml.safe_dump(raw_params))
    monkeypatch.setattr("components.core.system.checking.check_methods", lambda *_: [])
    done = CliRunner().invoke(app, ["mix", "tune", *arguments, "--write"])
    assert done.exit_code == 1
    assert told in done.output
    assert not Path("state").exists()
