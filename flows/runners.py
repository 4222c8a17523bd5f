"""The Prefect task runner for shards: threads of this process, a Ray or a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from components.core.errors import InputError
from components.core.settings import Scale

_HOST = "127.0.0.1"
AnyRunner = TaskRunner[Any]


def make_runner(scale: Scale, stage: str) -> AnyRunner:
    """The task runner that a stage's `scale` describes; nothing is started before it is entered.

    Raises:
        InputError: the runner's package is not installed.
    """
    try:
        return _RUNNERS[scale.runner](scale)
    except ImportError as error:
        raise InputError(
            f"params.yaml: {stage}.scale.runner '{scale.runner}' lacks a package ({error}): "
            f"pip install cliptune[{scale.runner}]"
        ) from None


def _threads(scale: Scale) -> AnyRunner:
    return ThreadPoolTaskRunner(max_workers=scale.workers)


def _ray(scale: Scale) -> AnyRunner:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Without "local" Ray would join whatever cluster it finds on this machine.
    address, options = scale.address or "local", {}
    if scale.address is None:
        # The name tells where Ray does this by itself: a cluster of one node that listens on loopback alone.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        options = {"num_cpus": scale.workers, "include_dashboard": False, "_node_ip_address": _HOST}
    from prefect_ray import RayTaskRunner  # type: ignore[import-untyped]

    runner: AnyRunner = RayTaskRunner(address=address, init_kwargs=options)
    return runner


def _dask(scale: Scale) -> AnyRunner:
    # Otherwise Prefect's log shows every connection of the cluster.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "warning")
    from prefect_dask.task_runners import DaskTaskRunner

    if scale.address is not None:
        return DaskTaskRunner(address=scale.address)
    local = {"n_workers": scale.workers, "threads_per_worker": 1, "host": _HOST, "dashboard_address": f"{_HOST}:0"}
    return DaskTaskRunner(cluster_kwargs=local)


_RUNNERS: dict[str, Callable[[Scale], AnyRunner]] = {"threads": _threads, "ray": _ray, "dask": _dask}
