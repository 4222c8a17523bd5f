"""Damaged files of every kind end in one line: no hang over ten seconds, no more than 1 GB, no traceback."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fuzzing import READERS, REPO

SECONDS = float(os.environ.get("CLIPTUNE_FUZZ_S", "600"))
"""Of all kinds together."""


@pytest.mark.parametrize("kind", READERS)
def test_damaged_files_are_one_line(kind: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("CLIPTUNE_FUZZ_SEED") or random.SystemRandom().randrange(1 << 32))
    command = [
        sys.executable,
        "-m",
        "tests.support.fuzzing",
        kind,
        str(SECONDS / len(READERS)),
        str(seed),
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    last = tmp_path / "last"
    given = last.read_bytes()[:3000] if last.exists() else b""
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}\nlast input: {given!r}"
    assert "read 0 files" not in done.stdout
