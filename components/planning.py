"""What `dvc repro` would do and what it would lack, said before anything runs.

DVC's own dry run ends at the first stage whose inputs no earlier run has made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from components.doctor.check import Surroundings
from components.doctor.checks import all_checks
from components.doctor.examine import Line, examine
from components.errors import InputError
from components.processes import CommandError
from components.stage_graph import changes, is_locked, read_graph


@dataclass(frozen=True)
class Planned:
    """One stage: `runs` with what changed about it, `runs after others` with the first of them, or `up to date`."""

    stage: str
    state: str
    why: str


def plan(targets: Iterable[str]) -> list[Planned]:
    """The stages that `targets` need, themselves included, in an order in which they can run.

    Raises:
        InputError: DVC cannot read the pipeline or knows no such stage.
    """
    try:
        graph = read_graph()
        wanted = graph.upstream(targets)
        changed = changes(graph, wanted)
    except CommandError as error:
        if is_locked(str(error)):
            raise InputError("another run works on the stages of this checkout: ask again when it has ended") from error
        raise InputError(f"{error}: correct dvc.yaml or params.yaml, or the stage's name") from error
    touched = graph.downstream(changed)
    planned = []
    for stage in wanted:
        # What an earlier stage has yet to make tells nothing new about a later one.
        above = sorted(graph.needs[stage] & touched)
        if above:
            planned.append(Planned(stage, "runs after others", above[0]))
        else:
            planned.append(Planned(stage, "runs" if stage in changed else "up to date", changed.get(stage, "")))
    return planned


def missing_data(around: Surroundings) -> list[Line]:
    """What the pipeline reads, does not make itself, and cannot find; each with the mend."""
    lines = examine(around, checks={"data": all_checks()["data"]})
    return [line for line in lines if line.status == "fail"]
