"""Whatever a user starts while MLflow's server is unavailable fails with one line, without the password."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tracking import tracked_run
from components.core.tracking.errors import WAIT
from components.registry.champion import rollback
from components.registry.encoder_lookup import find_encoder
from components.registry.evidence import find_links
from components.registry.promotion import promote
from components.registry.sweep import sweep_aliases, sweep_runs
from components.serving.server.served import Alias, Loading
from tests.support.registry_project import Project

CALLS: dict[str, Callable[[Settings], object]] = {
    "promote": promote,
    "rollback": rollback,
    "history": lambda _: find_links("text-encoder", "1"),
    "version": lambda _: find_encoder("text-encoder/3"),
    "run": lambda _: find_encoder("0" * 32),
    "serve": lambda _: Loading().first("text-encoder@champion"),
    "watch": lambda _: Alias("text-encoder", "champion").version(),
    "sweep aliases": lambda _: sweep_aliases("text-encoder"),
    "sweep runs": lambda _: sweep_runs(True),
    "stage": lambda settings: tracked_run("train", "one", settings, {}, {}).__enter__(),
}


def test_one_line_without_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://bob:s3cr3t@127.0.0.1:1")
    monkeypatch.setenv(WAIT, "0")
    for encoder in settings.compare_encoders:
        Project(settings, {}).score(encoder, "s", 0.5)
    for name, call in CALLS.items():
        with pytest.raises(InputError, match=r"http://\*\*\*@127.0.0.1:1 does not answer") as output:
            call(settings)
        assert "s3cr3t" not in str(output.value), name
        assert "\n" not in str(output.value), name
