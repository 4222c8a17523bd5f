"""What `dvc repro` would do and what it would lack, said before anything runs.

DVC's own dry run ends at the first stage whose inputs no earlier run has made.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from components.core.checking import check_methods, check_names, table_files
from components.core.discovery import choose
from components.core.errors import InputError
from components.core.processes import CommandError
from components.core.settings import Settings, load_settings
from components.core.stage_graph import Graph, changes, is_locked, ran, read_all, read_graph
from components.doctor.check import Surroundings
from components.doctor.checks import data
from components.doctor.examine import Line, examine

NEVER_RAN = "it has not run yet"
_UNWATCHED = ("language_model", "distractor_data")
"""Keys of an entry of `methods` that name files which are no output of a stage."""


@dataclass(frozen=True)
class Planned:
    """One stage: `runs` with what changed about it, `runs after others` with the first of them, or `up to date`."""

    stage: str
    state: str
    why: str


def plan(targets: Iterable[str]) -> list[Planned]:
    """The stages that `targets` need, themselves included, in an order in which they can run.

    Args:
        targets: stages, and groups of stages such as `train`.

    Raises:
        InputError: params.yaml has a wrong key, value or name, DVC cannot read the pipeline, or knows no such stage.
    """
    settings = load_settings()
    check_names(settings)
    _check_gate(settings)
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(_ask_dvc, list(targets))
        check_methods(settings.methods, table_files(settings))
        graph, wanted, changed = asked.result()
    touched, known = graph.downstream(changed), ran()
    planned = []
    for stage in wanted:
        # What an earlier stage has yet to make tells nothing new about a later one.
        above = sorted(graph.needs[stage] & touched)
        if above:
            planned.append(Planned(stage, "runs after others", above[0]))
        else:
            why = changed.get(stage, "") if stage in known else NEVER_RAN
            planned.append(Planned(stage, "runs" if stage in changed else "up to date", why))
    return planned


def _check_gate(settings: Settings) -> None:
    """Look up the metrics of `promote`, as far as they are over all queries.

    Raises:
        InputError: its benchmark has no such metric, or `evaluate.ks` no such depth.
    """
    from components.benchmarks.embedded import find_benchmark

    promote = settings.promote
    guards = [name for name, loss in promote.guards.items() if loss is not None]
    for key, name in (("primary", promote.primary), *(("guards", name) for name in guards)):
        benchmark, *rest = name.split("/")
        if len(rest) == 1:
            families = [metric.name for metric in find_benchmark(benchmark).metrics]
            ks = settings.evaluate.ks if any(family.endswith("_at_k") for family in families) else ()
            known = [family.replace("_at_k", f"_at_{k}") for family in families for k in ks or ("",)]
            choose([f"{benchmark}/{one}" for one in dict.fromkeys(known)], name, f"params.yaml: promote.{key}")


def unwatched(stages: Iterable[Planned]) -> list[str]:
    """What DVC cannot tell a change of, a line for each training that is up to date and may read such files."""
    settings, lines = load_settings(), []
    for stage in (one.stage for one in stages if one.state == "up to date"):
        group, _, name = stage.partition("@")
        entry = settings.methods.get(name, {}) if group == "train" else {}
        files = [f"methods.{name}.{key}" for key in _UNWATCHED if entry.get(key) is not None]
        if entry and settings.train.shards is not None and entry.get("image_tower") != "frozen":
            files.append("train.shards (unless its image tower is frozen)")
        if files:
            lines.append(
                f"dvc does not watch {' and '.join(files)}: after a change of these files run "
                f"`dvc repro --force --single-item {stage}`"
            )
    return lines


def _ask_dvc(targets: list[str]) -> tuple[Graph, list[str], dict[str, str]]:
    """The pipeline, the stages of it that `targets` need, and what changed about stages."""
    try:
        try:
            graph, changed = read_all()
        except CommandError as error:
            if not is_locked(str(error)):
                raise
            graph, changed = read_graph(), None
        wanted = graph.upstream(stage for target in targets for stage in _stages(graph, target))
        # Another run may work on stages that are not asked about.
        return graph, wanted, changes(graph, wanted) if changed is None else changed
    except CommandError as error:
        raise InputError(_explained(str(error))) from error


def _stages(graph: Graph, target: str) -> list[str]:
    groups = {stage.partition("@")[0] for stage in graph.needs}
    return graph.named(target) or [choose(sorted({*groups, *graph.needs}), target, "dvc.yaml: stage")]


def _explained(fault: str) -> str:
    """What DVC says, with what to do about it."""
    if is_locked(fault):
        return "another run works on the stages of this checkout: ask again when it has ended"
    reason = fault.partition("failed: ")[2].removeprefix("ERROR: ")
    if "is not a git repository" in reason:
        return f"{reason}, which DVC wants: run `git init` there"
    if "Read-only file system" in reason or "Permission denied" in reason:
        return f"DVC cannot write into .dvc ({reason}): give yourself permission or use a copy of the project"
    return f"DVC cannot read the pipeline ({reason}): correct dvc.yaml"


def missing_data(around: Surroundings) -> list[Line]:
    """What the pipeline reads, does not make itself, and cannot find; each with the fix."""
    lines = examine(around, checks={"data": data.CHECK})
    return [line for line in lines if line.status == "fail"]
