"""No test writes into a store of the user's: all of them have stores of their own, and the user's are guarded."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
from prefect.settings import PREFECT_HOME

from components.core.settings import Settings
from components.core.tracking import make_client, tracked_run, tracking_uri
from tests.support import own_stores

REPO = own_stores.REPO


def test_all_tests_have_stores_of_their_own_also_for_a_run_in_the_repository(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = str(own_stores.FOLDER)
    for place in (tracking_uri(), PREFECT_HOME.value(), huggingface_hub.constants.HF_HUB_CACHE):
        assert below in str(place)
    monkeypatch.chdir(REPO)
    with tracked_run("base", "base", settings, {}, {}) as run:
        run.log_artifact(REPO / "LICENSE")
    assert make_client().get_run(run.id).info.artifact_uri.startswith(f"{own_stores.FOLDER.as_uri()}/mlruns/artifacts/")


def test_the_servers_of_the_user_are_forgotten() -> None:
    # In a process of its own, because another test's fixture may have a server of its own in this one.
    code = "import tests.support.own_stores, prefect.settings; print(prefect.settings.PREFECT_API_URL.value())"
    users = {"PREFECT_API_URL": "http://127.0.0.1:4200/api", "HOME": str(own_stores.FOLDER)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, env=os.environ | users, capture_output=True, text=True, check=False
    )
    assert done.stdout == "None\n", done.stderr


@pytest.mark.parametrize(
    "write",
    [
        # Of files that are not there, so that a broken guard does no harm.
        lambda: sqlite3.connect("mlruns/none/mlflow.db"),
        lambda: Path("state/none/generations.db").write_bytes(b""),
        lambda: Path("data/none/new").mkdir(),
        lambda: Path("models/none").rename("elsewhere"),
        lambda: (REPO / "dvc.lock" / "none").open("a"),
        lambda: shutil.rmtree("reports/none"),
        (Path.home() / ".prefect" / "none").unlink,
    ],
)
def test_the_stores_of_the_user_are_guarded(write: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    with pytest.raises(RuntimeError, match="a test writes to"):
        write()
    # Otherwise this test fails at its end.
    assert len(own_stores.refused) == 1
    own_stores.refused.clear()
