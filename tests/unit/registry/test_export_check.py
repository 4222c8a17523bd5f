"""An export that cannot end well does not begin."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from components.cli import app
from components.encoders.adapter.sidecar import SIDECAR


def _refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["export", *arguments])
    assert done.exit_code == 1, done.output
    assert done.output.count("\n") == 1
    return done.output


@pytest.fixture(autouse=True)
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that looks like an encoder's, and whose weights would be a fault of their own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / SIDECAR).write_text("{}")


@pytest.mark.parametrize("output", ["taken/exported", "taken/a/b", "/proc/exported"])
def test_a_place_that_cannot_be_written(output: str) -> None:
    Path("taken").write_text("a file, not a folder")
    told = _refused("--encoder", "mine", "--format", "open_clip", "--output", output)
    assert told.startswith(f"error: --output {output} cannot be written (")
    assert told.endswith("): name another place\n")


def test_a_place_without_the_right_to_write(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "closed").mkdir(mode=0o500)
    told = _refused("--encoder", "mine", "--format", "open_clip", "--output", "closed/exported")
    assert "closed/exported cannot be written (Permission denied)" in told


def test_a_place_that_is_taken_a_format_and_an_encoder_that_are_unknown() -> None:
    assert "models is there already" in _refused("--encoder", "mine", "--format", "open_clip", "--output", "models")
    told = _refused("--encoder", "mine", "--format", "openclip", "--output", "new")
    assert "--format 'openclip' is unknown: did you mean 'open_clip'?" in told
    told = _refused("--encoder", "yours", "--format", "open_clip", "--output", "new")
    assert "--encoder 'yours' is nothing that is known here" in told
    assert not Path("new").exists()
    assert sorted(path.name for path in Path().iterdir()) == ["models"]
