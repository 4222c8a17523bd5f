"""A store that was moved or copied with its project finds its artifacts, and writes into its own folder."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.tracking._tracking_service.utils import _artifact_repos_cache

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tracking import STORE, address, make_client, tracked_run
from components.core.tracking.address import relocate


@pytest.fixture
def made(tmp_path: Path, track_in: Callable[[Path], None], settings: Settings) -> Path:
    """A project with one run, its artifact, a logged model and a registered version."""
    project = tmp_path / "pro ject ü"
    project.mkdir()
    track_in(project)
    Path("weights").mkdir()
    for file in (Path("a.txt"), Path("weights/one")):
        file.write_text("content")
    with tracked_run("train", "one", settings, {}, {}) as run:
        run.log_artifact(Path("a.txt"))
        run.log_model("one", 1, {}, files=Path("weights"))
    client = make_client()
    client.create_registered_model("text-encoder")
    source = f"{client.get_run(run.id).info.artifact_uri}/registered/x"
    client.create_model_version("text-encoder", source, run.id)
    return project


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _used(folder: Path, name: str) -> None:
    """Read the run's artifact and write another one, as a command in the project does."""
    client = _client(folder)
    (run,) = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    for place in (run.info.artifact_uri, client.get_model_version("text-encoder", "1").source):
        assert place.startswith(f"{folder.resolve().as_uri()}/mlruns/artifacts/"), place
    assert Path(client.download_artifacts(run.info.run_id, "a.txt")).read_text() == "content"
    new = folder / "b.txt"
    new.write_text("new")
    client.log_artifact(run.info.run_id, str(new))
    assert list((folder / STORE / "artifacts").rglob("b.txt"))


def _client(folder: Path) -> MlflowClient:
    # Another process has no memory of the project's earlier place.
    _artifact_repos_cache.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / STORE / 'mlflow.db'}")
        return make_client()


def test_a_moved_project_finds_its_artifacts(made: Path, tmp_path: Path, settings: Settings) -> None:
    moved = made.rename(tmp_path / "moved")
    _used(moved, settings.dataset.name)
    assert not made.exists()
    with closing(sqlite3.connect(moved / STORE / "mlflow.db")) as connection:
        assert made.name not in "".join(connection.iterdump())


@pytest.mark.parametrize("left_out", [(), ("artifacts",)])
def test_a_copy_never_writes_into_the_original(
    made: Path, tmp_path: Path, settings: Settings, left_out: tuple[str, ...]
) -> None:
    before = _files(made)
    copy = shutil.copytree(made, tmp_path / "copy", ignore=shutil.ignore_patterns(*left_out))
    client = _client(copy)
    (run,) = client.search_runs([client.get_experiment_by_name(settings.dataset.name).experiment_id])
    client.log_artifact(run.info.run_id, str(copy / "a.txt"), "more")
    assert list((copy / STORE / "artifacts").rglob("more/a.txt"))
    assert _files(made) == before
    _used(made, settings.dataset.name)


def test_places_of_projects_that_share_a_database_stay(made: Path, tmp_path: Path, settings: Settings) -> None:
    shared = tmp_path / "shared" / STORE / "mlflow.db"
    shared.parent.mkdir(parents=True)
    (made / STORE / "mlflow.db").rename(shared)
    relocate(shared)
    experiment = MlflowClient(f"sqlite:///{shared}").get_experiment_by_name(settings.dataset.name)
    assert experiment.artifact_location.startswith(made.as_uri())


def test_opening_waits_for_its_lock_for_a_limited_time(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = made / STORE / "mlflow.db.lock"
    assert lock.exists()
    monkeypatch.setattr(address, "_LOCK_S", 0.1)
    with FileLock(lock), pytest.raises(InputError, match=r"mlflow\.db\.lock is held by another process"):
        make_client()
    # Of another user: the tables exist, and nothing needs the lock.
    lock.unlink()
    lock.mkdir()
    make_client().search_experiments()
    (made / STORE / "mlflow.db").unlink()
    with pytest.raises(InputError, match=r"mlflow\.db\.lock cannot be written"):
        make_client()
