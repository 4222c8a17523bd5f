"""The stages of dvc.yaml: their needs, and which are out of date; used by flows and `cliptune plan`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from components.core.system.processes import CommandError

DVC = (sys.executable, "-m", "dvc")
# `--wait-for-lock` waits only for the lock of the checkout, not for those of a stage's files.
_BUSY = re.compile(r"is busy, it is being blocked by|Unable to acquire lock")
_NODE = re.compile(r'^"([^"]+)";$', re.MULTILINE)
_EDGE = re.compile(r'^"([^"]+)" -> "([^"]+)";$', re.MULTILINE)

_CODE = ("components/", "flows/")
_STATES = {"modified": "changed", "deleted": "is missing", "new": "is new", "not in cache": "is not in DVC's cache"}
"""DVC's words for the state of a file or setting -> plainer ones."""


@dataclass(frozen=True)
class Graph:
    """Stages and their direct needs."""

    needs: Mapping[str, frozenset[str]]
    """Stage -> the stages whose outputs are its inputs."""

    def named(self, target: str) -> list[str]:
        """The stages of `target` for DVC: one, or all of a `foreach` group; none if it is unknown."""
        return [stage for stage in self.needs if target in (stage, stage.partition("@")[0])]

    def upstream(self, targets: Iterable[str]) -> list[str]:
        """The stages that `targets` need and `targets` themselves, each after its needs.

        Raises:
            CommandError: a target is not a stage; the message names it.
        """
        wanted: set[str] = set()
        waiting = list(targets)
        while waiting:
            stage = waiting.pop()
            if stage not in self.needs:
                raise CommandError(f"dvc.yaml has no stage {stage}")
            if stage not in wanted:
                wanted.add(stage)
                waiting += self.needs[stage]
        return [stage for stage in self._order() if stage in wanted]

    def downstream(self, changed: Iterable[str]) -> set[str]:
        """The stages of `changed`, and all stages that need one of them."""
        touched = set(changed)
        for stage in self._order():
            if self.needs[stage] & touched:
                touched.add(stage)
        return touched

    def _order(self) -> Iterable[str]:
        # Sorted, because the order of a set of strings differs between processes.
        return TopologicalSorter({stage: sorted(those) for stage, those in self.needs.items()}).static_order()


def read_graph() -> Graph:
    """The stages of dvc.yaml, in one call of DVC; raises `CommandError` if DVC cannot read the pipeline."""
    text = _dvc("dag", "--dot")
    needs: dict[str, set[str]] = {stage: set() for stage in _NODE.findall(text)}
    for upstream, stage in _EDGE.findall(text):
        needs.setdefault(upstream, set())
        needs.setdefault(stage, set()).add(upstream)
    return Graph({stage: frozenset(those) for stage, those in needs.items()})


def read_all() -> tuple[Graph, dict[str, str]]:
    """`read_graph`, and `changes` of all its stages, by two parallel processes of DVC."""
    with ThreadPoolExecutor(1) as other:
        # DVC parses dvc.yaml again for each named stage, so the status of all is requested.
        status = other.submit(_dvc, "--wait-for-lock", "status", "--json")
        graph = read_graph()
        return graph, _of_stages(graph, status.result())


def outdated(graph: Graph, wanted: list[str]) -> set[str]:
    """The stages among `wanted` that are or may be out of date, by one call of DVC.

    A stage is up to date if neither it nor any stage that it needs has changed. While another run works on one of them,
    DVC gives no status, and all of them count as out of date.

    Raises:
        CommandError: DVC fails for another reason.
    """
    try:
        changed = changes(graph, wanted)
    except CommandError as error:
        if is_locked(str(error)):
            return set(wanted)
        raise
    return graph.downstream(changed) & set(wanted)


def changes(graph: Graph, wanted: list[str]) -> dict[str, str]:
    """Stage -> its own changes, such as `params.yaml: train.lr changed`, for the stages of `wanted` that changed.

    Raises:
        CommandError: DVC fails, for example while another run works on one of them.
    """
    return _of_stages(graph, _dvc("--wait-for-lock", "status", "--json", *wanted))


def _of_stages(graph: Graph, status: str) -> dict[str, str]:
    changed = json.loads(status)
    return {stage: ", ".join(_reasons(entries)) for stage, entries in changed.items() if stage in graph.needs}


def _reasons(entries: list[Any]) -> list[str]:
    """The changes of one stage in DVC's status, in words: settings, code, then data."""
    settings, code, others = list[str](), list[str](), list[str]()
    for entry in entries:
        kinds = {"": entry} if isinstance(entry, str) else entry
        for things in kinds.values():
            if isinstance(things, str):
                others.append("command changed" if things == "changed command" else things)
                continue
            for thing, state in things.items():
                if isinstance(state, str) and not thing.startswith(_CODE):
                    others.append(f"{thing} {_STATES.get(state, state)}")
                elif isinstance(state, str):
                    code.append(f"{'' if code else 'code changed: '}{thing}")
                else:
                    settings += (f"{thing}: {key} {_STATES.get(kind, kind)}" for key, kind in state.items())
    return [*settings, *code, *others]


def is_locked(message: str) -> bool:
    """Whether DVC failed because another of its processes works on the same files."""
    return _BUSY.search(message) is not None


def _dvc(*arguments: str) -> str:
    done = subprocess.run([*DVC, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(f"`dvc {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout
