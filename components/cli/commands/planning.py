"""The stages that `dvc repro` would run, and the data that it would lack.

DVC's own dry run ends at the first stage whose inputs do not exist yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.cli.doctor import CHECKS
from components.cli.doctor.check import CheckResult, examine, read_installation
from components.cli.doctor.servers import endpoint_checks
from components.core.compute.provenance import locked_stages, words_only
from components.core.settings import PARAMS, Settings, load_settings
from components.core.system.checking import check_names, check_settings
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.system.processes import CommandError
from components.core.system.stage_graph import Graph, read_all

NEVER_RAN = "never ran"
_OWN = {"state", "checkpoint_dir"}
"""Name of settings with a folder that a stage writes and reads itself, outside its outputs."""


@dataclass(frozen=True)
class Planned:
    """One stage: `runs` with its changes, `runs after others` with the first of these, or `up to date`."""

    stage: str
    state: str
    why: str


def plan(targets: Iterable[str]) -> list[Planned]:
    """The stages that `targets` (stages, or groups such as `train`) need, and these, in an order that can run."""
    settings = load_settings()
    check_names(settings)
    _check_gate(settings)
    with ThreadPoolExecutor(1) as other:
        status = other.submit(_dvc_status, list(targets))
        check_settings(settings)
        graph, wanted, changed = status.result()
    touched, locked = graph.downstream(changed), locked_stages()
    planned = []
    for stage in wanted:
        # A stage whose inputs do not exist yet is outdated anyway.
        above = sorted(graph.needs[stage] & touched)
        if above:
            planned.append(Planned(stage, "runs after others", above[0]))
        else:
            why = _explained_change(locked, changed, stage)
            planned.append(Planned(stage, "runs" if stage in changed else "up to date", why))
    return planned


def _explained_change(locked: Mapping[str, Any], changed: Mapping[str, str], stage: str) -> str:
    """The reason for which a stage runs; for changed words alone, the command that keeps its results."""
    if stage not in locked:
        return NEVER_RAN
    why = changed.get(stage, "")
    return f"words only: `dvc commit -f {stage}`" if words_only(locked[stage], why) else why


def _check_gate(settings: Settings) -> None:
    """Check the metrics of `promote` that are over all queries."""
    from components.evaluation.benchmarks.project import find_benchmark

    promote = settings.promote
    for key, name in (("metric", promote.metric), *(("guards", name) for name in promote.active_guards)):
        benchmark, *rest = name.split("/")
        if len(rest) == 1:
            families = [metric.name for metric in find_benchmark(benchmark).metrics]
            ks = settings.evaluate.top_k if any(family.endswith("_at_k") for family in families) else ()
            known = [family.replace("_at_k", f"_at_{k}") for family in families for k in ks or ("",)]
            choose([f"{benchmark}/{one}" for one in dict.fromkeys(known)], name, f"params.yaml: promote.{key}")


def unwatched(stages: Iterable[Planned]) -> list[str]:
    """The files of settings of up-to-date stages that DVC does not watch, a line for each of these stages.

    dvc.lock has the settings and dependencies of the last run of each stage.
    """
    locked = locked_stages()
    made = [_absolute(out["path"]) for stage in locked.values() for out in stage.get("outs", [])]
    lines = []
    for stage in (planned.stage for planned in stages if planned.state == "up to date"):
        recorded = locked.get(stage, {})
        watched = [*made, *(_absolute(dep["path"]) for dep in recorded.get("deps", []))]
        named = dict.fromkeys(
            " ".join([key, *(f"(but {path.name} in it)" for path in watched if path.is_relative_to(place))])
            for key, place in _places(recorded.get("params", {}).get(str(PARAMS), {}))
            if not any(place.is_relative_to(path) for path in watched)
            and not any(path.is_relative_to(place) for path in made)
        )
        if named:
            lines.append(
                f"dvc does not watch {' and '.join(named)}: name the files in `depends` of params.yaml, or after a "
                f"change of them run `dvc repro --force --single-item {stage}`"
            )
    return lines


def _places(setting: Any, key: str = "") -> Iterator[tuple[str, Path]]:
    """The files and folders that a setting names, each with its key, without those that a stage writes itself."""
    if isinstance(setting, dict):
        for name, below in setting.items():
            if name not in _OWN:
                yield from _places(below, f"{key}.{name}".removeprefix("."))
    elif isinstance(setting, list):
        for below in setting:
            yield from _places(below, key)
    elif isinstance(setting, str) and (setting.startswith("s3://") or os.path.exists(setting.partition("{")[0])):
        yield key, _absolute(setting.partition("{")[0])


def _absolute(path: str) -> Path:
    return Path(os.path.abspath(path))


def _dvc_status(targets: list[str]) -> tuple[Graph, list[str], dict[str, str]]:
    """The pipeline, the stages that `targets` need, and the changes of stages."""
    try:
        graph, changed = read_all()
        return graph, graph.upstream(stage for target in targets for stage in _stages(graph, target)), changed
    except CommandError as error:
        raise InputError(_explained(str(error))) from error


def _stages(graph: Graph, target: str) -> list[str]:
    groups = {stage.partition("@")[0] for stage in graph.needs}
    return graph.named(target) or [choose(sorted({*groups, *graph.needs}), target, "dvc.yaml: stage")]


def _explained(fault: str) -> str:
    """DVC's error with a fix."""
    reason = fault.partition("failed: ")[2].removeprefix("ERROR: ")
    if "is not a git repository" in reason:
        return f"{reason}, which DVC requires: run `git init` there"
    if "Read-only file system" in reason or "Permission denied" in reason:
        return f"DVC cannot write into .dvc ({reason}): get write permission or use a copy of the project"
    return f"DVC cannot read the pipeline ({reason}): correct dvc.yaml"


def problems(stages: Iterable[Planned]) -> list[CheckResult]:
    """Missing files that no stage makes, and language models of the stages that do not answer."""
    running = [planned.stage for planned in stages if planned.state != "up to date"]
    checks = {"data": CHECKS["data"], **endpoint_checks(load_settings(), running)}
    return [line for line in examine(read_installation(Path()), checks) if line.status == "fail"]
