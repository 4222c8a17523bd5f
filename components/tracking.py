"""The only module that talks to MLflow runs."""

from __future__ import annotations

import json
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import yaml

from components.captions.workers import new_worker
from components.provenance import git_commit, path_hash
from components.settings import Settings

if TYPE_CHECKING:
    from mlflow import MlflowClient

STORE = Path("mlruns")
PARENT_RUN = "CLIPTUNE_PARENT_RUN"
"""Environment variable with the run id that new runs are nested under."""
RUN_FILE = "run.json"
"""Beside an encoder: the run that trained it, as `TrackedRun.reference` gives it."""
_BATCH = 200


class Killed(BaseException):
    """The process was told to stop; not an `Exception`, so that nothing on the way swallows it."""


class TrackedRun:
    """One MLflow run, addressed by its id alone; metrics are buffered and sent in batches."""

    def __init__(self, client: MlflowClient, run_id: str, experiment: str) -> None:
        self._client = client
        self._buffer: list[Any] = []
        self.id = run_id
        self.experiment = experiment

    def reference(self) -> dict[str, str]:
        """What a stage writes beside its output so that others find the run."""
        return {"run_id": self.id, "experiment": self.experiment, "tracking_uri": tracking_uri()}

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Note metrics; they are sent when enough have come together, and when the run ends."""
        from mlflow.entities import Metric
        from mlflow.utils.time import get_current_time_millis

        now = get_current_time_millis()
        self._buffer += [Metric(name, float(value), now, step) for name, value in metrics.items()]
        if len(self._buffer) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Send what `log_metrics` noted."""
        batch, self._buffer = self._buffer, []
        for start in range(0, len(batch), 1000):
            self._client.log_batch(self.id, metrics=batch[start : start + 1000])

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log settings; nested ones get dotted names."""
        from mlflow.entities import Param

        flat = [Param(name, str(value)[:6000]) for name, value in _flat(params)]
        for start in range(0, len(flat), 100):
            self._client.log_batch(self.id, params=flat[start : start + 100])

    def log_dataset(self, name: str, path: Path, digest: str) -> None:
        """Record a file or folder as an input dataset of the run, known by its content hash."""
        from mlflow.entities import Dataset, DatasetInput

        source = json.dumps({"uri": str(path)})
        self._client.log_inputs(self.id, [DatasetInput(Dataset(name, digest[:36], "local", source))])

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run."""
        for name, value in tags.items():
            self._client.set_tag(self.id, name, value)

    def log_artifact(self, path: Path) -> None:
        """Copy a file, or a folder under its own name, into the run's artifacts."""
        if path.is_dir():
            self._client.log_artifacts(self.id, str(path), path.name)
        else:
            self._client.log_artifact(self.id, str(path))


def tracking_uri() -> str:
    """`MLFLOW_TRACKING_URI`, or the SQLite file below `mlruns/`."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{STORE / 'mlflow.db'}"


def make_client() -> MlflowClient:
    """A client of the tracking store, which is made where it is missing."""
    from mlflow import MlflowClient

    STORE.mkdir(exist_ok=True)
    return MlflowClient(tracking_uri())


def add_metrics(encoder: Path, metrics: Mapping[str, float]) -> None:
    """Log an encoder's evaluation into the run that trained it, so that MLflow compares methods by it.

    An encoder that no tracked stage trained (no `run.json` in its folder), and a run that the store does not
    know, are passed over: the results on disk are what counts.
    """
    from mlflow.exceptions import MlflowException

    reference = encoder / RUN_FILE
    if not reference.is_file():
        return
    run_id = json.loads(reference.read_text("utf-8"))["run_id"]
    client = make_client()
    try:
        experiment = client.get_experiment(client.get_run(run_id).info.experiment_id).name
    except MlflowException:
        return
    run = TrackedRun(client, run_id, experiment)
    run.log_metrics(metrics)
    run.flush()


@contextmanager
def tracked_run(
    stage: str, name: str, settings: Settings, params: Mapping[str, object], inputs: Mapping[str, Path]
) -> Iterator[TrackedRun]:
    """A run for the length of the block: FINISHED when it succeeds, FAILED when it raises, KILLED when told to stop.

    Args:
        stage: the pipeline's stage, a tag.
        name: the run's name: the encoder or method.
        settings: `world.name` is the experiment.
        params: logged as the run's parameters.
        inputs: name -> file or folder; their hashes become tags.
    """
    client = make_client()
    tags = _tags(stage, name) | _input_tags(inputs)
    run = client.create_run(_experiment(client, settings.world.name), run_name=name, tags=tags)
    tracked = TrackedRun(client, run.info.run_id, settings.world.name)
    status = "FAILED"
    with _stopped_by_signals() as ignore_stops:
        try:
            tracked.log_params(params)
            for key, path in inputs.items():
                tracked.log_dataset(key, path, tags[f"input.{key}.sha256"])
            yield tracked
            status = "FINISHED"
        except (Killed, KeyboardInterrupt) as stop:
            status = "KILLED"
            if isinstance(stop, KeyboardInterrupt):
                raise
            raise SystemExit(128 + signal.SIGTERM) from None
        finally:
            ignore_stops()
            try:
                tracked.flush()
            finally:
                client.set_terminated(tracked.id, status)


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    if tracking_uri().startswith("http"):
        return str(client.create_experiment(name))
    # Without a location MLflow would write artifacts to ./mlruns/<id>, mixed with its database.
    location = (STORE / "artifacts" / name).resolve().as_uri()
    return str(client.create_experiment(name, artifact_location=location))


def _tags(stage: str, name: str) -> dict[str, str]:
    commit = git_commit()
    tags = {
        "stage": stage,
        "encoder": name,
        "git_commit": commit,
        "git_dirty": str(commit.endswith("-dirty")).lower(),
        "cliptune": _version("cliptune"),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        # By it the flow `sweep` knows a run whose process is gone.
        "owner": new_worker(),
    }
    if parent := os.environ.get(PARENT_RUN):
        tags["mlflow.parentRunId"] = parent
    return tags


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _input_tags(inputs: Mapping[str, Path]) -> dict[str, str]:
    tags: dict[str, str] = {}
    locked = _dvc_hashes()
    for key, path in inputs.items():
        tags[f"input.{key}"] = str(path)
        tags[f"input.{key}.sha256"] = path_hash(path)
        if str(path) in locked:
            tags[f"input.{key}.dvc_md5"] = locked[str(path)]
    return tags


def _dvc_hashes(lock: Path = Path("dvc.lock")) -> dict[str, str]:
    """Output path -> md5 of everything that dvc.lock knows."""
    if not lock.is_file():
        return {}
    stages = (yaml.safe_load(lock.read_text("utf-8")) or {}).get("stages", {})
    return {out["path"]: out.get("md5", "") for stage in stages.values() for out in stage.get("outs", [])}


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@contextmanager
def _stopped_by_signals() -> Iterator[Callable[[], None]]:
    """Raise `Killed` in the main thread on SIGTERM; the old handler is put back afterwards.

    Yields a function after which SIGTERM is ignored, so that no signal interrupts the writing of the run's end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def ignore() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def stop(_number: int, _frame: FrameType | None) -> None:
        ignore()
        raise Killed

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield ignore
    finally:
        signal.signal(signal.SIGTERM, previous)
