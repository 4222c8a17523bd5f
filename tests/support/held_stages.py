"""Real stages, each stopped at a moment of its work, to be killed there."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from components.core.system import supervisor
from components.core.system.processes import CommandError
from flows import stages
from tests.support.waiting import runs, started, wait_until

REPO = Path(__file__).parents[2]
PATIENCE_S = 300.0
GONE_WITHIN_S = 60.0
"""The supervisor gives its command 20 s; the rest is for a slow machine."""
_AT, _HELD = "HOLD_AT", "held"
# Python imports it at its start. What a stage wrote so far is there; what it is about to put in place is not.
_HOLD = f"""
import os, pathlib, time
_replace = os.replace
def replace(source, target, **options):
    if str(target).endswith(os.environ["{_AT}"]):
        pathlib.Path("{_HELD}").write_text(str(os.getpid()))
        time.sleep(3600)
    return _replace(source, target, **options)
if "{_AT}" in os.environ:
    os.replace = replace
"""
# As `flows.commands` does.
_WORKER = """
import os, subprocess, sys
subprocess.run([*sys.argv[1:3], str(os.getpid()), *sys.argv[3:]])
"""


def real_pipeline(*stages: str) -> dict[str, Any]:
    """Stages of the product's dvc.yaml, as `name` or `name@key`, that depend only on data."""
    raw = yaml.safe_load((REPO / "dvc.yaml").read_text("utf-8"))["stages"]
    made = {}
    for stage in stages:
        name, _, key = stage.partition("@")
        written = yaml.safe_dump(raw[name].get("do", raw[name]))
        for template, value in {
            '"$DVC_STAGE"': key,
            "${item}": key,
            "${key}": key,
            "${item.folder}": "data/validated/paraclip",
        }.items():
            written = written.replace(template, value)
        body = yaml.safe_load(written)
        deps = [path for path in body["deps"] if not path.startswith(("components", "${depends."))]
        kept = {part: body[part] for part in ("cmd", "outs", "metrics") if part in body}
        made[f"{name}-{key}" if key else name] = kept | {"deps": deps}
    return {"stages": made}


def start_checkout(folder: Path) -> None:
    """Make a folder a checkout with DVC, and put what holds stages into it."""
    (folder / "hold").mkdir()
    (folder / "hold" / "sitecustomize.py").write_text(_HOLD)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=folder, check=True)


def _environment(folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # As many threads as warm stages have: sums of another order differ in the last digit.
    own = {"PATH": path, "PYTHONPATH": f"{folder / 'hold'}{os.pathsep}{REPO}", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own}


def _repro(stage: str) -> list[str]:
    return [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", stage]


@contextmanager
def held(folder: Path, stage: str, moment: str) -> Iterator[list[psutil.Process]]:
    """A stage under its supervisor, held when it is about to put `moment` in place.

    Yields all of its processes, the one that a worker runs its flow in first; the block must end all of them.
    """
    (folder / _HELD).unlink(missing_ok=True)
    log = folder / "log"
    supervised = [sys.executable, supervisor.__file__, "20", *_repro(stage)]
    command, environment = [sys.executable, "-c", _WORKER, *supervised], _environment(folder) | {_AT: moment}
    worker = started(command, log, cwd=folder, env=environment)

    def is_held() -> bool:
        assert worker.poll() is None, log.read_text()
        return (folder / _HELD).exists()

    family = [psutil.Process(worker.pid)]
    try:
        wait_until(is_held, PATIENCE_S, log.read_text)
        family += family[0].children(recursive=True)
        yield family
        worker.wait(PATIENCE_S)
        wait_until_gone(family)
    finally:
        for process in filter(runs, family):
            process.kill()
        worker.wait()


def wait_until_gone(family: Sequence[psutil.Process]) -> None:
    """Return when none of the processes runs; an orphan may remain a zombie."""
    wait_until(lambda: not any(map(runs, family)), GONE_WITHIN_S, lambda: list(filter(runs, family)))


def command_line(process: psutil.Process) -> list[str]:
    """A process's command, empty when it has ended."""
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def rerun(folder: Path, stage: str) -> None:
    """Run the stage to its end as a flow does, which waits where DVC's locks are in the way."""

    def work() -> None:
        environment = _environment(folder)
        done = subprocess.run(_repro(stage), cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CommandError(done.stdout + done.stderr)

    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "get_run_logger", lambda: logging.getLogger("flow"))
        stages.when_free(work, stage)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
