"""Brings stages up to date in parallel, each as soon as the stages that it needs are done."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from components.core.settings import load_settings
from components.core.system.processes import CommandError
from components.core.system.stage_graph import Graph, outdated, read_graph
from components.core.tracking import parent_run
from flows.commands import stops_commands
from flows.stages import HOURS, run_stage

PARALLEL = 4
"""Default maximum number of stages that run at the same time."""


@dataclass
class _Work:
    """The stages that wait and run, and the results of the others."""

    graph: Graph
    todo: list[str]
    running: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    faults: dict[str, BaseException] = field(default_factory=dict)

    def ready(self) -> list[str]:
        """Stages that can start: all stages that they need are done."""
        open_stages = {*self.todo, *self.running, *self.faults}
        return [stage for stage in self.todo if not self.graph.needs[stage] & open_stages]


def bring_up_to_date(
    targets: list[str], parallel: int = PARALLEL, hours: float | None = HOURS, last: str | None = None
) -> None:
    """Run the outdated stages among `targets` and the stages that these need; leaves the artifact `stages`.

    A failed stage stops only the stages that need it. The next run resumes from there.

    Args:
        last: a stage to run after `targets`, without the other stages that it needs.
    """
    graph = read_graph()
    wanted = graph.upstream(targets)
    wanted += [last] if last is not None and last not in wanted else []
    stale = outdated(graph, wanted)
    get_run_logger().info("%d of %d stages are up to date", len(wanted) - len(stale), len(wanted))
    work = _Work(graph, [stage for stage in wanted if stage in stale])
    with _parent(targets) if work.todo else nullcontext():
        if work.todo:
            ranks = load_settings().train.processes if Path("params.yaml").is_file() else 1
            # The order matters: leaving the runner waits for its threads, and these wait for their commands.
            threads: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=parallel)
            with threads as runner, stops_commands():
                _work_off(work, runner, {"hours": hours, "ranks": ranks})
        show_stages({stage: _result(work, stage) for stage in wanted}, work.seconds)
        # Within the MLflow run, which ends as failed.
        _check(work.faults)


def _check(faults: dict[str, BaseException]) -> None:
    """Raise the error of the only stage that failed, or a `CommandError` that names all that failed."""
    if faults:
        first, fault = next(iter(faults.items()))
        if len(faults) == 1:
            raise fault
        others = ", ".join(list(faults)[1:])
        raise CommandError(f"{len(faults)} stages failed: {first}, {others}; the error of {first}: {fault}")


def _parent(targets: list[str]) -> AbstractContextManager[object]:
    """The flow's MLflow run, the parent of those of its stages; nothing outside a project."""
    if not Path("params.yaml").is_file():
        return nullcontext()
    name = flow_run.flow_name or "flow"
    params = {"targets": ", ".join(targets), "flow_run": flow_run.name or ""}
    return parent_run("flow", name, load_settings(), params)


def _work_off(work: _Work, runner: TaskRunner[Any], options: dict[str, Any]) -> None:
    ended: SimpleQueue[tuple[str, PrefectFuture[Any]]] = SimpleQueue()
    while True:
        for stage in work.ready():
            work.todo.remove(stage)
            work.running.add(stage)
            future = runner.submit(run_stage.with_options(name=stage), {"name": stage, **options})
            future.add_done_callback(lambda future, stage=stage: ended.put((stage, future)))  # type: ignore[misc]
        if not work.running:
            return
        stage, future = ended.get()
        work.running.remove(stage)
        try:
            work.seconds[stage] = future.result()
        except Exception as fault:
            work.faults[stage] = fault
            get_run_logger().error("%s", fault)


def _result(work: _Work, stage: str) -> str:
    if stage in work.faults:
        return "failed"
    if stage in work.todo:
        return "not started: it needs a stage that failed"
    return "done" if stage in work.seconds else "up to date"


@task(cache_policy=NO_CACHE)
def show_stages(results: dict[str, str], seconds: dict[str, float]) -> None:
    """The table `stages`: the result of each stage."""
    rows = [
        {"stage": stage, "result": result, "seconds": f"{seconds[stage]:.1f}" if stage in seconds else ""}
        for stage, result in results.items()
    ]
    create_table_artifact(rows, key="stages", description="The result of each stage, in the order of the pipeline.")
