"""The commands of the tutorial, in their order, on a smaller catalogue: they end with a champion."""

from __future__ import annotations

import json
import runpy
import subprocess
from pathlib import Path

import pytest

from tests.support.checkout import REPO, make_checkout, newcomer
from tests.support.documented import block_lines

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]
COUNTS = {"train": 96, "val": 16, "test": 40}


def test_the_tutorial_ends_with_a_decision(tmp_path: Path) -> None:
    checkout = tmp_path / "cliptune"
    make_checkout(checkout)
    drawn, *lines, served = filter(None, block_lines((REPO / "docs" / "tutorial.md").read_text("utf-8")))
    assert (drawn, served) == ("python docs/examples/catalogue.py data/catalogue", "cliptune serve")
    assert lines[-1] == "cliptune promote"
    runpy.run_path(str(REPO / "docs/examples/catalogue.py"))["main"](checkout / "data/catalogue", COUNTS)
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line], cwd=checkout, env=newcomer(checkout), capture_output=True, text=True, check=False
        )
        # With so few pictures the gate may refuse the candidate, which is a decision too.
        assert done.returncode == 0 or line == "cliptune promote", done.stdout + done.stderr
    record = json.loads(next((checkout / "reports/promotion").glob("*.json")).read_text("utf-8"))
    assert record
    metrics = json.loads((checkout / "reports/metrics/paraclip.json").read_text("utf-8"))["metrics"]
    assert metrics["paraphrased_retrieval/ao_at_10"]["queries"] == COUNTS["test"]
