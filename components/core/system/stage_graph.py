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
from importlib.metadata import version
from pathlib import Path
from typing import Any

from components.core.system.processes import CommandError

DVC = (sys.executable, "-m", "dvc")
# A process with DVC's locks, if only to read, makes a `dvc repro` fail that ends a stage meanwhile.
_WITHOUT_LOCKS = """
import sys
from contextlib import nullcontext
import dvc.lock, dvc.rwlock
dvc.lock.make_lock = lambda *_, **__: dvc.lock.LockNoop()
dvc.rwlock.rwlock = lambda *_: nullcontext()
from dvc.cli import main
sys.exit(main(sys.argv[1:]))
"""
READING_DVC = (sys.executable, "-c", _WITHOUT_LOCKS)
_LOCK_FILE = Path("dvc.lock")
_TRIES = 3
_NODE = re.compile(r'^"([^"]+)";$', re.MULTILINE)
_EDGE = re.compile(r'^"([^"]+)" -> "([^"]+)";$', re.MULTILINE)

_CODE = ("components/", "flows/")
CODE_CHANGED = "code changed: "
"""Before the changed folders of code, in the changes of a stage."""
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
        status = other.submit(_dvc, "status", "--json")
        graph = read_graph()
        return graph, _of_stages(graph, status.result())


def outdated(graph: Graph, wanted: list[str]) -> set[str]:
    """The stages among `wanted` that are out of date, by one call of DVC; raises as `changes`.

    A stage is up to date if neither it nor any stage that it needs has changed. One that another run works on is out of
    date.
    """
    return graph.downstream(changes(graph, wanted)) & set(wanted)


def changes(graph: Graph, wanted: list[str]) -> dict[str, str]:
    """Stage -> its own changes, such as `params.yaml: train.lr changed`, for the stages of `wanted` that changed.

    Raises:
        CommandError: DVC fails.
    """
    return _of_stages(graph, _dvc("status", "--json", *wanted))


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
                    code.append(f"{'' if code else CODE_CHANGED}{thing}")
                else:
                    settings += (f"{thing}: {key} {_STATES.get(kind, kind)}" for key, kind in state.items())
    return [*settings, *code, *others]


def make_linked_lock(lock: Path = Path("dvc.lock")) -> None:
    """Make the file that dvc.lock links to, which DVC requires: containers share one in a volume, at first empty."""
    if lock.is_symlink() and not lock.exists():
        lock.resolve().write_text("schema: '2.0'\n", encoding="utf-8")


def _dvc(*arguments: str) -> str:
    """What DVC prints; again if another run wrote dvc.lock meanwhile, of which DVC may have read a part."""
    version("dvc")  # names the extra if DVC is not installed
    make_linked_lock()
    for _ in range(_TRIES):
        before = _lock_stamp()
        done = subprocess.run([*READING_DVC, *arguments], capture_output=True, text=True, check=False)
        if _lock_stamp() == before:
            break
    if done.returncode != 0:
        raise CommandError(f"`dvc {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout


def _lock_stamp() -> tuple[int, int] | None:
    try:
        stat = _LOCK_FILE.stat()
    except FileNotFoundError:
        return None
    return stat.st_mtime_ns, stat.st_size
