"""A synthesize stage killed with SIGKILL loses no stored answer and asks no question twice."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.tables.records import GENERATIONS, PAIRS

ROWS, BATCH = 12, 2
COMMAND = (sys.executable, "-m", "components.captions.synthesize", "--task", "paraphrase_1", "--fresh")


def _stored(project: Path) -> dict[str, str]:
    store = project / "state" / "generations.db"
    if not store.exists():
        return {}
    with sqlite3.connect(store) as connection:
        try:
            return dict(connection.execute("select key, answer from generations"))
        except sqlite3.OperationalError:
            return {}


@pytest.fixture
def project(tmp_path: Path, raw_params: dict[str, Any]) -> Path:
    captions = [f"a small dog number {number} left of a large cat" for number in range(ROWS)]
    ids = [f"p{n}" for n in range(ROWS)]
    pairs = {"id": ids, "image_id": ids, "image": [b"i"] * ROWS, "caption": captions, "facts": [None] * ROWS}
    PAIRS.write(tmp_path / "data" / "pairs" / "train.parquet", pairs)
    models = {"raw": {"engine": "local", "batch_size": BATCH}}
    task = raw_params["synthesize"]["tasks"]["paraphrase_1"] | {"samples": 1, "max_tokens": 6}
    changes = {
        "llms": models,
        "default_llm": "raw",
        "cached_answers": None,
        "max_captions": ROWS,
        "tasks": {"paraphrase_1": task},
    }
    # Answers of six tokens are cut, which many do not survive.
    changes |= {"max_failed_share": 1.0}
    raw_params["synthesize"] |= changes
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params))
    return tmp_path


@pytest.mark.integration
def test_killed_and_run_again(project: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    victim = subprocess.Popen(COMMAND, cwd=project, env=environment, stderr=subprocess.DEVNULL)
    while len(_stored(project)) < 2 * BATCH:
        assert victim.poll() is None, "the stage ended before it could be killed"
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    kept = _stored(project)
    assert 2 * BATCH <= len(kept) < ROWS
    assert not (project / "data" / "captions").exists()

    second = subprocess.run(COMMAND, cwd=project, env=environment, capture_output=True, text=True, check=True)
    counts = re.search(r"replayed (\d+), generated (\d+), failed (\d+)", second.stdout)
    assert counts is not None
    replayed, generated, failed = map(int, counts.groups())
    assert (replayed, generated + failed) == (len(kept), ROWS - len(kept))
    assert generated > failed
    after = _stored(project)
    assert {key: after[key] for key in kept} == kept
    table = GENERATIONS.read(project / "data" / "captions" / "paraphrases" / "paraphrase_1.parquet")
    unanswered = [str(reason).startswith("failed") for reason in table["reason"].to_pylist()]
    answered = [key for key, lacks in zip(table["key"].to_pylist(), unanswered, strict=True) if not lacks]
    assert sorted(answered) == sorted(after)
