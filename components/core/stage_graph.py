"""The stages of dvc.yaml: which need which, and which are out of date; used by flows and `cliptune plan`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from components.core.processes import CommandError

DVC = (sys.executable, "-m", "dvc")
# `--wait-for-lock` waits for the lock of the checkout alone, not for those of a stage's files.
_BUSY = re.compile(r"is busy, it is being blocked by|Unable to acquire lock")
_NODE = re.compile(r'^"([^"]+)";$', re.MULTILINE)
_EDGE = re.compile(r'^"([^"]+)" -> "([^"]+)";$', re.MULTILINE)


@dataclass(frozen=True)
class Graph:
    """Stages and what each needs directly.

    Attributes:
        needs: stage -> the stages whose outputs it reads.
    """

    needs: Mapping[str, frozenset[str]]

    def named(self, target: str) -> list[str]:
        """The stages that DVC means by `target`: one, or all of a `foreach` group; none where there is no such."""
        return [stage for stage in self.needs if target in (stage, stage.partition("@")[0])]

    def upstream(self, targets: Iterable[str]) -> list[str]:
        """The stages that `targets` need, themselves included, each after all that it needs.

        Raises:
            CommandError: a target is no stage; the message names it.
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
        """The stages of `changed`, and all that need one of them."""
        touched = set(changed)
        for stage in self._order():
            if self.needs[stage] & touched:
                touched.add(stage)
        return touched

    def _order(self) -> Iterable[str]:
        # Sorted, because sets of texts have another order in each process.
        return TopologicalSorter({stage: sorted(those) for stage, those in self.needs.items()}).static_order()


def read_graph() -> Graph:
    """The stages of dvc.yaml, in one call of DVC.

    Raises:
        CommandError: DVC cannot read the pipeline.
    """
    text = _ask("dag", "--dot")
    needs: dict[str, set[str]] = {stage: set() for stage in _NODE.findall(text)}
    for upstream, stage in _EDGE.findall(text):
        needs.setdefault(upstream, set())
        needs.setdefault(stage, set()).add(upstream)
    return Graph({stage: frozenset(those) for stage, those in needs.items()})


def read_all() -> tuple[Graph, dict[str, str]]:
    """`read_graph`, and `changes` of all its stages, by two processes of DVC at once.

    Raises:
        CommandError: as for each of them.
    """
    with ThreadPoolExecutor(1) as other:
        # DVC reads dvc.yaml again for each stage that it is asked about by name, so it is asked about all.
        told = other.submit(_ask, "--wait-for-lock", "status", "--json")
        graph = read_graph()
        return graph, _of_stages(graph, told.result())


def outdated(graph: Graph, wanted: list[str]) -> set[str]:
    """Those of the stages `wanted` that DVC has to look at, found in one call of DVC.

    A stage is up to date when nothing about it changed and nothing about any stage that it needs. While another run
    works on one of them, DVC cannot tell, and all of them are to be looked at.

    Raises:
        CommandError: DVC cannot tell for another reason.
    """
    try:
        changed = changes(graph, wanted)
    except CommandError as error:
        if is_locked(str(error)):
            return set(wanted)
        raise
    return graph.downstream(changed) & set(wanted)


def changes(graph: Graph, wanted: list[str]) -> dict[str, str]:
    """Stage -> what changed about it itself, such as `data/pairs deleted`, for those of `wanted` that changed.

    Raises:
        CommandError: DVC cannot tell, as while another run works on one of them.
    """
    return _of_stages(graph, _ask("--wait-for-lock", "status", "--json", *wanted))


def _of_stages(graph: Graph, status: str) -> dict[str, str]:
    told = json.loads(status)
    return {stage: ", ".join(_reasons(entries)) for stage, entries in told.items() if stage in graph.needs}


def _reasons(entries: list[Any]) -> Iterator[str]:
    """What DVC says of one stage: `changed command`, or kinds of things with the state of each."""
    for entry in entries:
        kinds = {"": entry} if isinstance(entry, str) else entry
        for things in kinds.values():
            if isinstance(things, str):
                yield things
            else:
                yield from (f"{thing} {state}" for thing, state in _flat(things))


def _flat(things: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Settings stand below the name of their file."""
    for thing, state in things.items():
        if isinstance(state, str):
            yield thing, state
        else:
            yield from _flat(state)


def is_locked(message: str) -> bool:
    """Whether DVC failed because another of its processes works on the same files."""
    return _BUSY.search(message) is not None


def _ask(*arguments: str) -> str:
    done = subprocess.run([*DVC, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(f"`dvc {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout
