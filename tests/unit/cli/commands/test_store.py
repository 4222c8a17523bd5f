"""The commands `cliptune answers ...`."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from components.captions.generating.store import GenerationStore
from components.cli.commands import store as store_commands
from components.core.system.errors import InputError
from tests.support.store_rows import failures, replies, request, requests
from tests.support.typed import cliptune

REPO = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(REPO / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def filled(project: Path) -> GenerationStore:
    """The store of params.yaml with three answers and a failure."""
    store = GenerationStore("sqlite:///state/generations.db")
    store.add([*replies(requests(2)), *replies([request("x", task="rewrite", model="[other]")])])
    store.add(failures([request("bad")], "HTTP 500 [red]"))
    return store


def test_stats_and_prune_report_answers_and_dry_runs_delete_nothing(filled: GenerationStore) -> None:
    output = cliptune("answers", "stats")
    for cell in ("paraphrase_1", "rewrite", "[other]", "HTTP 500 [red]"):
        assert cell in output
    assert "3 answers" in output.splitlines()[-1]
    assert "store: sqlite:///state/generations.db" in output.splitlines()[-1]
    found = json.loads(cliptune("answers", "stats", "--json"))
    assert (found["rows"], len(found["answers"]), found["failures"][0]["reason"]) == (3, 2, "HTTP 500 [red]")
    output = cliptune("answers", "prune", "--task", "rewrite", "--dry-run")
    assert output.splitlines()[-2:] == ["rewrite, [other]: 1 answers", "would remove 1 answers"]
    assert filled.count() == 3
    filled.add(replies([request("x", task="of_old")]))
    for options, removed in (
        ("--task rewrite", "1 answers"), ("--task of_old", "1 answers"), ("--task swap_negative", "0 answers"),
        ("--failed", "1 failures"), ("--older-than 1h", "0 answers"), ("--model m", "2 answers"),
    ):  # fmt: skip
        if removed[0] != "0":
            for answer in ("", "n\n"):
                assert "nothing was removed" in cliptune("answers", "prune", *options.split(), code=1, answer=answer)
        assert cliptune("answers", "prune", *options.split(), "--yes").splitlines()[-1] == f"removed {removed}"
    assert filled.count() == 0
    filled.add(replies([request("y")]))
    assert cliptune("answers", "prune", "--model", "m", answer="y\n").splitlines()[-1] == "removed 1 answers"
    assert cliptune("answers", "prune", "--task", "rewrit").splitlines()[-1] == "removed 0 answers"


def test_ages_and_dates() -> None:
    for text, age in (("12h", timedelta(hours=12)), ("30d", timedelta(days=30)), ("2w", timedelta(weeks=2))):
        assert abs(datetime.now(UTC) - age - store_commands._moment(text)) < timedelta(minutes=5)
    assert store_commands._moment("2025-01-31") == datetime(2025, 1, 31, tzinfo=UTC)
    for text in ("-5d", "0d", "-1w", "9990-12-31", "0h", "2990-01-01T12:00+02:00"):
        with pytest.raises(InputError, match="is not in the past"):
            store_commands._moment(text)
    assert store_commands._moment("2025-01-31T12:00+02:00") == datetime(2025, 1, 31, 10, tzinfo=UTC)
