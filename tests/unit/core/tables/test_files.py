"""Files appear whole or not at all; files of killed writers are removed by the next writer."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from components.core.tables import files
from components.core.tables.files import atomic_file, atomic_folder, content_hash, file_hash, write_json

REPO = Path(__file__).parents[4]
_KILLED = """
import os, signal, sys
from pathlib import Path
from components.core.tables import files
with getattr(files, sys.argv[1])(Path("out[1]")) as temporary:
    (temporary / "half" if temporary.is_dir() else temporary).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_files_of_weights_follow_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with atomic_file(tmp_path / "one.safetensors") as temporary:
            save_file({"a": np.zeros(2)}, temporary)
        with atomic_folder(tmp_path / "folder") as temporary:
            (temporary / "inner").mkdir()
            save_file({"a": np.zeros(2)}, temporary / "inner" / "two.safetensors")
    finally:
        os.umask(before)
    for path in (tmp_path / "one.safetensors", tmp_path / "folder" / "inner" / "two.safetensors"):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file_and_the_old_folder(tmp_path: Path, fault: type[BaseException]) -> None:
    path, folder = tmp_path / "file.txt", tmp_path / "folder"
    with atomic_file(path) as temporary:
        temporary.write_text("old")
        assert not path.exists()
    with pytest.raises(fault), atomic_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half of the n")
        raise fault
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_text() == "old"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    with pytest.raises(fault), atomic_folder(folder) as temporary:  # noqa: PT012
        (temporary / "new.txt").write_text("new")
        raise fault
    assert _names(folder) == ["old.txt"]
    assert _names(tmp_path) == ["file.txt", "folder"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_folder_replaces_the_old_one(exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one step where the file system can: a kill between two would leave no folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.delattr("os.replace") if exchanges else monkeypatch.setattr(files, "_exchanged", lambda *_: False)
    for name in ("one", "two"):
        with atomic_folder(folder) as temporary:
            (temporary / name).write_text(name)
    assert _names(folder) == ["two"]
    assert _names(tmp_path) == ["folder"]


def test_file_hash_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert file_hash(tmp_path / "f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
@example(["ab", "c"], ["a", "bc"])
def test_content_hashes_of_lists_are_equal_where_the_lists_are(one: list[str], other: list[str]) -> None:
    assert (content_hash(*one) == content_hash(*other)) == (one == other)
    assert content_hash(*one) == content_hash(*(part.encode() for part in one))


@pytest.mark.parametrize("name", ["atomic_file", "atomic_folder"])
def test_the_next_writer_removes_files_of_killed_writers(name: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, name], cwd=tmp_path, env={"PYTHONPATH": str(REPO)}, check=False)
    assert [path.name.startswith(".out[1].") for path in tmp_path.iterdir()] == [True]
    with atomic_file(tmp_path / "another"), atomic_folder(tmp_path / "out"):
        assert len(list(tmp_path.glob(".out[[]1*"))) == 1
    with atomic_file(tmp_path / "out[1]") as mine, atomic_file(tmp_path / "out[1]"):
        assert mine.exists()
        assert len(list(tmp_path.glob(".out[[]1*"))) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "out", "out[1]"]
