"""The MLflow run around a stage (`tracked_run`), and the evaluation of an encoder in the run that trained it."""

from __future__ import annotations

import errno
import json
import logging
import os
import platform
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from components.core.compute.provenance import git_commit, locked_hashes, path_hash
from components.core.settings import Settings
from components.core.system.errors import InputError, shown_address
from components.core.system.processes import new_worker
from components.core.tracking import offline_spool
from components.core.tracking.address import artifacts_folder, find_experiment, make_client, tracking_uri
from components.core.tracking.errors import (
    SOON_S,
    call_with_retries,
    environment,
    fail_fast,
    is_full,
    is_transient,
    reason_of,
    wait_s,
)
from components.core.tracking.offline_spool import AsynchronousMetrics, Unsent

if TYPE_CHECKING:
    from mlflow import MlflowClient

RUN_FILE = "run.json"
"""File in an encoder's folder: `TrackedRun.reference` of the run that trained it."""
PARENT_RUN = "CLIPTUNE_PARENT_RUN"
"""Environment variable: id of the parent of new runs."""
_KILLED_WAIT_S = 5.0
_LOG = logging.getLogger(__name__)


class TrackedRun:
    """One MLflow run; metrics are sent in batches while the stage continues."""

    def __init__(self, client: MlflowClient, run_id: str, experiment: str) -> None:
        self._client = client
        self._asynchronous_metrics = AsynchronousMetrics(client, run_id)
        self._artifacts: list[Path] = []
        self.id = run_id
        self.experiment = experiment

    def reference(self) -> dict[str, str]:
        """The run's id, experiment and server; a stage writes them next to its output."""
        return {"run_id": self.id, "experiment": self.experiment, "tracking_uri": shown_address(tracking_uri())}

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Queue metrics; they are sent in batches and when the run ends.

        Raises:
            MlflowException: the server refused earlier metrics. An unavailable server is not an error.
        """
        from mlflow.entities import Metric
        from mlflow.utils.time import get_current_time_millis

        now = get_current_time_millis()
        self._asynchronous_metrics.put([Metric(name, float(value), now, step) for name, value in metrics.items()])

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log settings; nested settings get dotted names."""
        from mlflow.entities import Param

        flat = [Param(name, str(value)[:6000]) for name, value in _flat(params)]
        for start in range(0, len(flat), 100):
            batch = flat[start : start + 100]
            call_with_retries(partial(self._client.log_batch, self.id, params=batch), wait_s())

    def log_dataset(self, name: str, path: Path, digest: str) -> None:
        """Record a file or folder as an input dataset of the run, with its content hash."""
        from mlflow.entities import Dataset, DatasetInput

        source = json.dumps({"uri": str(path)})
        inputs = [DatasetInput(Dataset(name, digest[:36], "local", source))]
        call_with_retries(lambda: self._client.log_inputs(self.id, inputs), wait_s())

    def log_output(self, path: Path) -> None:
        """Record the content hash of an output file or folder."""
        self.set_tags({f"output.{path.stem}": str(path), f"output.{path.stem}.sha256": path_hash(path)})

    def log_speed(self, rows: int, begun: float) -> None:
        """Log the seconds since `begun` (of `time.monotonic`) and rows per second."""
        seconds = time.monotonic() - begun
        self.log_metrics({"seconds": seconds, "rows_per_second": rows / seconds if seconds else 0.0})

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run."""
        for name, value in tags.items():
            call_with_retries(partial(self._client.set_tag, self.id, name, value), wait_s())

    def log_artifact(self, path: Path) -> None:
        """Copy a file, or a folder with its name, into the run's artifacts when the run ends."""
        self._artifacts.append(path)

    def log_model(self, name: str, step: int, metrics: Mapping[str, float], files: Path | None = None) -> None:
        """Record weights as an MLflow logged model at a step, with its metrics as `checkpoint/...`.

        If the server is unavailable, there is a warning instead.

        Args:
            files: a folder to upload; by default the weights are in the run's own artifacts below `name`.
        """
        from mlflow.entities import LoggedModelOutput
        from mlflow.exceptions import MlflowException

        client, where = self._client, f"runs:/{self.id}/{name}"
        try:
            experiment = client.get_run(self.id).info.experiment_id
            tags = {} if files else {"artifacts": where}
            called = re.sub(r"[^\w-]", "-", name)
            model = client.create_logged_model(experiment, called, self.id, tags, {"step": str(step)}, "encoder")
            if files is not None:
                client.log_model_artifacts(model.model_id, str(files))
            client.finalize_logged_model(model.model_id, "READY")
            client.log_outputs(self.id, [LoggedModelOutput(model.model_id, step)])
            for metric, value in metrics.items():
                client.log_metric(self.id, f"checkpoint/{metric}", float(value), step=step, model_id=model.model_id)
        except MlflowException as error:
            if not is_transient(error):
                raise
            _LOG.warning("%s is unavailable: no logged model of %s", shown_address(tracking_uri()), where)

    def end(self, status: str, within_s: float | None = None) -> None:
        """Send the last metrics, the artifacts and the status; if the server is unavailable, write them to the spool.

        Args:
            within_s: how long to wait for the server; by default `wait_s`.

        Raises:
            MlflowException: the server refused some; the status is FAILED.
        """
        from mlflow.utils.time import get_current_time_millis

        # A process that gets SIGTERM has little time.
        within_s = within_s or (_KILLED_WAIT_S if status == "KILLED" else wait_s())
        ended = Unsent(status=status, end_ms=get_current_time_millis())
        deliver = partial(offline_spool.deliver, lambda: self._client, self.id)
        try:
            left = self._asynchronous_metrics.stop()
            deliver(replace(ended, metrics=left, artifacts=self._artifacts), within_s, f"the end of run {self.id}")
        except Exception:
            deliver(replace(ended, status="FAILED"), within_s, f"the end of run {self.id}")
            raise


@contextmanager
def tracked_run(
    stage: str, name: str, settings: Settings, params: Mapping[str, object], inputs: Mapping[str, Path]
) -> Iterator[TrackedRun]:
    """An MLflow run around a block: FINISHED if it succeeds, FAILED if it raises, KILLED on SIGTERM or Ctrl-C.

    Args:
        stage, name: the run's name, and tags.
        settings: `dataset.name` is the experiment.
        inputs: name -> file or folder; their hashes become tags.

    Raises:
        InputError: the tracking server is unavailable when the run begins.
        OSError: the disk of the tracking database is full.
    """
    tags = _run_tags(stage, name) | _input_tags(inputs)
    with _full_disk_as_os_error():
        # MLflow's tables show the name and not the stage.
        title = name if name.partition(" ")[0] == stage else f"{stage} {name}"
        tracked = _begin(settings.dataset.name, title, tags)
        status = "FAILED"
        # Calls are retried here; with MLflow's own retries each would block the stage for minutes.
        with fail_fast(), _stopped_by_sigterm() as sigterm:
            try:
                tracked.log_params(params)
                for key, path in inputs.items():
                    tracked.log_dataset(key, path, tags[f"input.{key}.sha256"])
                yield tracked
                status = "FINISHED"
            except BaseException as stop:
                if sigterm.is_set() or isinstance(stop, KeyboardInterrupt):
                    status = "KILLED"
                if isinstance(stop, _Killed):
                    raise SystemExit(128 + signal.SIGTERM) from None
                raise
            finally:
                try:
                    # Of this process with its imports, and of its children: unlike the duration it hardly depends on
                    # other programs of the machine.
                    tracked.log_metrics({"processor_seconds": sum(os.times()[:4])})
                    tracked.end(status)
                except BaseException as stop:
                    if isinstance(stop, Exception):
                        raise
                    tracked.end(status, _KILLED_WAIT_S)
                    if not isinstance(stop, _Killed):
                        raise


@contextmanager
def parent_run(stage: str, name: str, settings: Settings, params: Mapping[str, object]) -> Iterator[TrackedRun]:
    """An MLflow run around other runs: those that begin within it, also in other processes, are its children."""
    with tracked_run(stage, name, settings, params, {}) as parent, environment({PARENT_RUN: parent.id}):
        yield parent


class _Killed(BaseException):
    """The process received SIGTERM; not an `Exception`, so that no handler swallows it."""


@contextmanager
def _stopped_by_sigterm() -> Iterator[threading.Event]:
    """On SIGTERM in the main thread, raise the error of the old handler, or `_Killed`; yields whether it was received.

    Prefect's handler knows whether a flow is cancelled, and only by its error does the flow end as cancelled.
    """
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def stop(number: int, frame: FrameType | None) -> None:
        received.set()
        # Only the first one interrupts the block, so that the run is ended.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if callable(previous):
            previous(number, frame)
        raise _Killed

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def _full_disk_as_os_error() -> Iterator[None]:
    """Raise `OSError`, as other files do, if the disk of a database file is full."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not is_full(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), shown_address(tracking_uri())) from error


def _begin(experiment: str, name: str, tags: Mapping[str, str]) -> TrackedRun:
    from mlflow.exceptions import MlflowException

    try:
        client = make_client()
        offline_spool.send(client)
        run = client.create_run(_experiment(client, experiment), run_name=name, tags=dict(tags))
    except MlflowException as error:
        if is_full(error):
            raise
        where = shown_address(tracking_uri())
        raise InputError(
            f"MLFLOW_TRACKING_URI: {where} accepts no run ({reason_of(error)}): run `cliptune doctor`"
        ) from None
    return TrackedRun(client, run.info.run_id, experiment)


def _experiment(client: MlflowClient, name: str) -> str:
    if (known := find_experiment(client, name)) is not None:
        return known
    if tracking_uri().startswith("http"):
        return str(client.create_experiment(name))
    # Without a location MLflow would write artifacts to ./mlruns/<id>, mixed with its database.
    location = (artifacts_folder() / name).resolve().as_uri()
    return str(client.create_experiment(name, artifact_location=location))


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _run_tags(stage: str, name: str) -> dict[str, str]:
    """Tags of a run: its stage and encoder, the commit, the versions, the machine, the owner, the parent run."""
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
        # By it the flow `sweep` recognises a run whose process is gone.
        "owner": new_worker(),
    }
    if parent := os.environ.get(PARENT_RUN):
        tags["mlflow.parentRunId"] = parent
    return tags


def _input_tags(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Path, SHA-256 and, if it is in dvc.lock, MD5 of each input."""
    tags: dict[str, str] = {}
    locked = locked_hashes()
    for key, path in inputs.items():
        tags[f"input.{key}"] = str(path)
        tags[f"input.{key}.sha256"] = path_hash(path)
        if str(path) in locked:
            tags[f"input.{key}.dvc_md5"] = locked[str(path)]
    return tags


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def training_run(encoder: Path) -> str:
    """The id of the run that trained the encoder in a folder; empty if there is none."""
    try:
        return str(json.loads((encoder / RUN_FILE).read_text("utf-8"))["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def add_metrics(
    encoder: Path, metrics: Mapping[str, float], tables: Mapping[str, Mapping[str, list[Any]]] | None = None
) -> None:
    """Log an encoder's evaluation into the run that trained it, so that MLflow can compare methods.

    If the server is unavailable, the metrics are written to the spool. Nothing is logged for an encoder without
    `run.json`, or if the store does not have its run; the results on disk are enough.

    Args:
        tables: name -> column -> values, for MLflow's view of tables; a table that the run already has is not replaced.
    """
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
    from mlflow.utils.time import get_current_time_millis

    run_id = training_run(encoder)
    if not run_id:
        return
    now = get_current_time_millis()
    batch = [Metric(name, float(value), now, 0) for name, value in metrics.items()]
    try:
        with fail_fast(SOON_S):
            offline_spool.deliver(
                make_client, run_id, Unsent(batch, tables=tables or {}), 0, f"the evaluation of {encoder}"
            )
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            where = shown_address(tracking_uri())
            _LOG.warning("%s refuses the evaluation of %s (%s)", where, encoder, reason_of(error))
