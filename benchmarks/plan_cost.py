"""Are the times of `cliptune plan --cost` right? Each stage's seconds in the plan, and in the last run of the stage.

    cliptune plan --cost --json >plan.json && dvc repro compare && python -m benchmarks.plan_cost --plan plan.json

Measured is the processor time in MLflow, with imports; with one thread (`OMP_NUM_THREADS=1`) it is the time of a stage
on a free machine. Another machine, or a busy one, is slower for all stages alike, which `--rates` corrects; so the last
column has each stage's ratio over the median ratio. With `--factor` the exit code is 1 if that is wrong by more than
this factor for any stage.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from components.core.settings import load_settings
from components.core.system.errors import run_command
from components.tracking import make_client

_SINGLE = {"prepare", "base", "embed", "test_set", "compare"}
"""Stages without a name after `@`."""


def measured(experiment: str) -> dict[str, float]:
    """Processor seconds of the last finished run of each stage."""
    client = make_client()
    found = client.get_experiment_by_name(experiment)
    runs = client.search_runs([found.experiment_id], "status = 'FINISHED'", order_by=["start_time"]) if found else []
    seconds = {}
    for run in runs:
        stage, name = run.data.tags.get("stage", ""), run.data.tags.get("encoder", "")
        if "processor_seconds" in run.data.metrics:
            seconds[stage if stage in _SINGLE else f"{stage}@{name}"] = run.data.metrics["processor_seconds"]
    return seconds


def _compare(plans: list[Path], factor: float | None) -> None:
    rows = [row for plan in plans for row in json.loads(plan.read_text())]
    expected = {row["stage"]: row["seconds"] for row in rows if row["seconds"]}
    found = measured(load_settings().dataset.name)
    table = Table("stage", "plan", "run", "plan / run", "over the median")
    ratios = {stage: expected[stage] / found[stage] for stage in expected if stage in found}
    middle, wrong = median(list(ratios.values()) or [1.0]), []
    for stage, ratio in ratios.items():
        share = ratio / middle
        table.add_row(stage, f"{expected[stage]:.1f} s", f"{found[stage]:.1f} s", f"{ratio:.2f}", f"{share:.2f}")
        if factor is not None and not 1 / factor <= share <= factor:
            wrong.append(f"{stage} {share:.2f}")
    Console().print(table)
    if wrong or not table.rows:
        print(f"wrong by more than a factor of {factor:g}: {', '.join(wrong)}" if wrong else "no stage of the plan ran")
        raise SystemExit(1)


def main(
    plan: Annotated[list[Path], typer.Option(help="Output of `cliptune plan --cost --json` before the run.")],
    factor: Annotated[
        float | None, typer.Option(min=1.0, help="Largest factor by which a stage may differ from the median.")
    ] = None,
) -> None:
    """Compare the planned seconds of each stage with those of its last run.

    Example: python -m benchmarks.plan_cost --plan plan.json --factor 2
    """
    run_command(lambda: _compare(plan, factor))


if __name__ == "__main__":
    typer.run(main)
