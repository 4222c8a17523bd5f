"""The flow behind `prefect deployment run synthesize-captions/<where>`: prompt tasks over shards of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from pydantic import PositiveInt

from components.core.settings import Scale, Settings, load_settings
from components.core.system.errors import InputError
from components.core.system.stage_graph import outdated, read_graph
from components.core.tables.records import GENERATIONS
from flows.shards import ShardResult, make_runner, over_shards, summed
from flows.stages import run_stage

CAPTIONS = Path("data/captions")
_STAGE = "synthesize@"
_COMMAND = ("components.captions.synthesize", "--task")


@flow(name="synthesize-captions")
def synthesize_captions(
    tasks: list[str] | None = None,
    shards: PositiveInt | None = None,
    runner: Literal["threads", "ray", "dask"] | None = None,
) -> None:
    """Answer prompt tasks shard by shard, and have DVC write each table from the store.

    Args:
        tasks: keys of `synthesize.tasks`, by default all; the stages before them are brought up to date too.
        shards: number of shards of a task's rows; by default `synthesize.scale.shards`.
        runner: task runner of the shards; by default `synthesize.scale.runner`.
    """
    settings = load_settings()
    scale = scale_of(settings, shards, runner)
    if scale.address is not None and settings.synthesize.store.startswith("sqlite"):
        get_run_logger().warning("synthesize.store is SQLite, which other hosts cannot share: give a PostgreSQL URL")
    graph = read_graph()
    needed = graph.upstream(f"{_STAGE}{name}" for name in chosen_tasks(settings, tasks))
    stale = outdated(graph, needed)
    results: dict[str, list[ShardResult]] = {}
    with make_runner(scale, "synthesize") as started:
        for stage in needed:
            if stage.startswith(_STAGE):
                name = stage.removeprefix(_STAGE)
                # Its inputs may have been rewritten with the same content.
                current = stage not in stale or stage not in outdated(graph, [stage])
                results[name] = [] if current else over_shards(started, name, [*_COMMAND, name], scale.shards)
            if stage in stale:
                run_stage.with_options(name=stage)(stage)
    show_captions({name: CAPTIONS / settings.synthesize.answers(name) for name in results}, results)


@task(cache_policy=NO_CACHE)
def show_captions(files: dict[str, Path], results: dict[str, list[ShardResult]]) -> None:
    """The table `captions-table`: counts of each prompt task, with its answers in `files`."""
    rows: list[dict[str, Any]] = []
    for name, of_shards in results.items():
        accepted = GENERATIONS.read(files[name], ["accepted"])["accepted"].to_pylist()
        counts = summed(of_shards)
        done = {key: counts[key] for key in ("replayed", "generated", "failed")}
        rows.append(
            {"task": name, "shards": len(of_shards), "rows": len(accepted), **done, "rejected": accepted.count(False)}
        )
    create_table_artifact(
        rows,
        key="captions-table",
        description="Answers by prompt task. A task without shards was up to date.",
    )


def scale_of(settings: Settings, shards: int | None, runner: str | None) -> Scale:
    """The block `synthesize.scale` with the parameters of a run in place of its keys."""
    configured = settings.synthesize.scale
    requested: dict[str, Any] = {"shards": shards or configured.shards, "runner": runner or configured.runner}
    # The address in params.yaml belongs to a cluster of the runner in params.yaml.
    address = configured.address if requested["runner"] == configured.runner else None
    return Scale.model_validate({**configured.model_dump(), **requested, "address": address})


def chosen_tasks(settings: Settings, tasks: list[str] | None) -> list[str]:
    """The prompt tasks of a run."""
    available = list(settings.synthesize.tasks)
    for name in tasks or []:
        if name not in available:
            raise InputError(f"params.yaml has no block synthesize.tasks.{name}: choose from {', '.join(available)}")
    return tasks or available
