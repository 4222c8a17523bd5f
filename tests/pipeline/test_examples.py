"""Every example of docs/examples runs for every method, benchmark, source and prompt task."""

from __future__ import annotations

import math
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.core.system.discovery import names_in
from components.evaluation.benchmarks.project import benchmark_names
from components.evaluation.benchmarks.published import published_benchmarks
from components.training.methods.registry import method_names

REPO = Path(__file__).parents[2]
EXAMPLES = REPO / "docs" / "examples"
PUBLISHED_LAYOUTS = {"cc_neg", "semclip_cc_neg", "semclip_sugar_crepe_pp"}
"""Sources of one published data set each; their tests write its files."""

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)


def _load(name: str) -> dict[str, Any]:
    """The names that an example defines."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.parametrize("name", method_names())
def test_every_method_learns_in_its_example(name: str) -> None:
    losses = _load("method")["main"](name)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", benchmark_names())
def test_every_project_benchmark_scores(name: str) -> None:
    scored = _load("benchmark")["main"](name)
    # Only people have rated captions, and beside their paraphrases a model may have written more.
    assert bool(scored) == (name not in ("caption_ratings", "written_paraphrases"))
    assert all(math.isfinite(value) for value in scored.values())


def test_every_published_benchmark_names_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    main, silent = _load("benchmark")["main"], []
    for name, benchmark in sorted(published_benchmarks().items()):
        assert main(name) == {}, name
        shown = capsys.readouterr().out
        silent += [name for need in benchmark.needs[:1] if need.path not in shown]
    assert silent == []


def test_every_layout_of_a_source_is_read_back() -> None:
    example = _load("source")
    assert set(example["LAYOUTS"]) | PUBLISHED_LAYOUTS | {"synthetic"} == set(names_in("components.data.sources"))
    for name in sorted(example["LAYOUTS"]):
        pairs = example["main"](name)
        assert sorted(pair.split for pair in pairs) == ["test", *["train"] * 10, "val"], name
        assert len({pair.id for pair in pairs}) == 12, name


def test_every_prompt_task_asks_and_one_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    main = _load("prompt_task")["main"]
    for name in names_in("components.captions.prompting.tasks"):
        assert main(name) == [], name
        assert len(capsys.readouterr().out.splitlines()) > 4, name
    command = [sys.executable, str(EXAMPLES / "prompt_task.py"), "paraphrase_1", "--ask"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert shown.count("read as: ") == 3
    assert "read as: None" not in shown


def test_examples_list_their_names(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("method", "benchmark", "source", "prompt_task"):
        path = str(EXAMPLES / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [path])
        runpy.run_path(path, run_name="__main__")
        assert len(capsys.readouterr().out.split()) >= 7, name


def test_an_example_can_be_read_in_one_sitting() -> None:
    lines = {file.stem: len(file.read_text("utf-8").splitlines()) for file in EXAMPLES.glob("*.py")}
    assert lines.pop("paraclip_flat") <= 150
    assert max(lines.values()) <= 100
