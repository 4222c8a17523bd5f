"""What a killed process left half written goes when the same path is written again; a living one's stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from components.core.files import atomic_file, atomic_folder

REPO = Path(__file__).parents[3]
_KILLED = """
import os, signal, sys
from pathlib import Path
from components.core import files
with getattr(files, sys.argv[1])(Path("out[1]")) as temporary:
    (temporary / "half" if temporary.is_dir() else temporary).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("way", [atomic_file, atomic_folder])
def test_the_next_writer_clears_up(way: object, tmp_path: Path) -> None:
    name = "atomic_file" if way is atomic_file else "atomic_folder"
    subprocess.run([sys.executable, "-c", _KILLED, name], cwd=tmp_path, env={"PYTHONPATH": str(REPO)}, check=False)
    assert [path.name.startswith(".out[1].") for path in tmp_path.iterdir()] == [True]
    with atomic_file(tmp_path / "another"), atomic_folder(tmp_path / "out"):
        assert len(list(tmp_path.glob(".out[[]1*"))) == 1
    with atomic_file(tmp_path / "out[1]") as mine, atomic_file(tmp_path / "out[1]"):
        assert mine.exists()
        assert len(list(tmp_path.glob(".out[[]1*"))) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "out", "out[1]"]
