"""The benchmark of scale runs at a small size; speed and memory at five million rows are not tested."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import ranks
from benchmarks.scale import measure
from benchmarks.scale_inputs import Size
from benchmarks.scale_process import run, used
from components.core.system.errors import InputError

SIZE = Size(rows=2000, images=300, queries=100, batch=64, steps=10)
STAGES = (
    "prepare", "base", "embed", "synthesize paraphrase_1", "synthesize paraphrase_2", "validate", "tokens", "train",
    "evaluate",
)  # fmt: skip


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_every_stage_runs_at_a_small_size_and_once(tmp_path: Path) -> None:
    found = measure(tmp_path, SIZE, until="base")
    assert [one["stage"] for one in found] == list(STAGES[:2])
    (tmp_path / "measured" / "base.json").write_text(json.dumps(found[1] | {"seconds": -1.0}))
    found = measure(tmp_path, SIZE)
    assert [one["stage"] for one in found] == list(STAGES)
    assert found[1]["seconds"] == -1, "a stage that was done is not done again"
    for one in found[:1] + found[2:]:
        assert one["seconds"] > 0
        assert 0.05 < one["peak_own_memory_gb"] <= one["peak_memory_gb"] < 6
        assert one["disk_gb"] <= one["peak_disk_gb"]
    validated = json.loads((tmp_path / "data" / "quarantine" / "paraphrases" / "summary.json").read_text())
    assert validated["rows"] == SIZE.rows
    assert validated["accepted"] > 0.95 * SIZE.rows
    assert (tmp_path / "reports" / "metrics" / "base.json").is_file()
    # Told to stop, it saves one more, some steps later.
    checkpoints = list((tmp_path / "state" / "train").glob("paraclip-*/step-*"))
    assert min(json.loads((one / "state.json").read_text())["step"] for one in checkpoints) >= SIZE.steps
    with pytest.raises(InputError, match="another size"):
        measure(tmp_path, Size(3000, 300, 100, 64, 10))


def test_memory_of_all_processes_and_disk_are_seen(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    child = "import time; held = bytearray(300_000_000); open('left', 'wb').write(bytes(20_000_000)); time.sleep(2)"
    command = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    taken = run([sys.executable, "-c", command], work, {}, tmp_path / "log")
    assert 0.3 < taken.peak_own_memory_gb < 0.5
    assert taken.disk_gb == pytest.approx(0.02, abs=0.005)
    assert used(work) >= 20_000_000
    assert taken.seconds > 2


def test_a_command_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    sleeper = "import os, time; print(os.getpid(), flush=True); open('ready', 'w'); time.sleep(3600)"
    run([sys.executable, "-c", sleeper], tmp_path, {}, tmp_path / "log", until=(tmp_path / "ready").is_file)
    assert not psutil.pid_exists(int((tmp_path / "log").read_text()))


@pytest.mark.integration
def test_memory_of_each_rank_is_seen_after_some_steps(tmp_path: Path) -> None:
    found = ranks.measure(tmp_path, rows=20_000, ranks=2)
    assert (found["rows"], found["ranks"]) == (20_000, 2)
    assert len(found["rank_gb"]) == len(found["rank_own_gb"]) == 2
    assert all(0.1 < own <= whole < 3 for own, whole in zip(found["rank_own_gb"], found["rank_gb"], strict=True))
    assert sum(found["rank_own_gb"]) * 0.8 < found["peak_own_gb"] <= found["peak_gb"]
