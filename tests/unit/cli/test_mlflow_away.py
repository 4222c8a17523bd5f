"""A server that is away, asked by everything that people start: one line, and no password in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.registry.champion import rollback
from components.registry.encoder_lookup import find_encoder
from components.registry.lineage import find_links
from components.registry.promotion import promote
from components.serving.served import Alias, load_first
from components.sweeping.sweep import sweep_aliases, sweep_runs
from components.tracking import tracked_run
from components.tracking.errors import WAIT
from tests.support.registry_project import results

ASKED: dict[str, Callable[[Settings], object]] = {
    "promote": promote,
    "rollback": rollback,
    "history": lambda _: find_links("text-encoder", "1"),
    "version": lambda _: find_encoder("text-encoder/3"),
    "run": lambda _: find_encoder("0" * 32),
    "serve": lambda _: load_first("text-encoder@champion", 0),
    "watch": lambda _: Alias("text-encoder", "champion").version(),
    "sweep aliases": lambda _: sweep_aliases("text-encoder"),
    "sweep runs": lambda _: sweep_runs(24, True),
    "stage": lambda settings: tracked_run("train", "one", settings, {}, {}).__enter__(),
}


@pytest.mark.parametrize("asked", ASKED)
def test_one_line_without_password(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://bob:s3cr3t@127.0.0.1:1")
    monkeypatch.setenv(WAIT, "0")
    for name in settings.compare_encoders:
        write_json(Path(f"reports/metrics/{name}.json"), results(name, "s", 0.5).model_dump(mode="json"))
    with pytest.raises(InputError, match=r"http://\*\*\*@127.0.0.1:1 does not answer") as output:
        ASKED[asked](settings)
    assert "s3cr3t" not in str(output.value)
    assert "\n" not in str(output.value)
