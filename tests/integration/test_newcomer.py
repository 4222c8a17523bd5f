"""A new checkout: the tutorial ends with a champion, and the files of `cliptune new` work unchanged."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
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


NEW = {"method": "mine", "benchmark": "same_first", "source": "catalogue", "task": "shorten"}
TESTS = [
    "tests/unit/training/methods/test_mine.py",
    "tests/unit/evaluation/benchmarks/project/test_same_first.py",
    "tests/unit/data/sources/test_catalogue.py",
    "tests/unit/captions/prompting/test_shorten.py",
]


def test_new_files_work_unchanged_and_the_method_is_scored(tmp_path: Path) -> None:
    checkout = tmp_path / "cliptune"
    make_checkout(checkout)
    environment = newcomer(checkout)

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("cliptune", "profile", "apply", "toy")
    before = (checkout / "params.yaml").read_text()
    for family, name in NEW.items():
        assert f"{name}.py" in run("cliptune", "new", family, name, "--dry-run")
        run("cliptune", "new", family, name)
    after = (checkout / "params.yaml").read_text().splitlines()
    changed = [line for line in before.splitlines() if line not in after]
    assert [line.partition(":")[0] for line in changed] == ["compare_encoders"]
    run(sys.executable, "-m", "pytest", "-q", *TESTS)
    run("ruff", "check", "components", "tests")
    run("mypy", "-p", "components.training.methods", "-p", "components.data.sources")
    for example, name in (("method", "mine"), ("benchmark", "same_first"), ("prompt_task", "shorten")):
        run(sys.executable, f"docs/examples/{example}.py", name)
    run("dvc", "repro", "-q", "evaluate@mine")
    metrics = json.loads((checkout / "reports/metrics/mine.json").read_text())["metrics"]
    assert 0 <= metrics["same_first/same_first"]["value"] <= 1
    assert "retrieval/t2i_recall_at_5" in metrics
