"""Real stages, each held for ever at a moment in the midst of its work, to be killed there."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
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
from infra.services import runs

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
    """Stages of the product's dvc.yaml, as `name` or `name@key`, that depend on data alone."""
    raw = yaml.safe_load((REPO / "dvc.yaml").read_text("utf-8"))["stages"]
    made = {}
    for stage in stages:
        name, _, key = stage.partition("@")
        written = yaml.safe_dump(raw[name].get("do", raw[name]))
        for template, value in {"${item}": key, "${key}": key, "${item.folder}": "data/validated/paraclip"}.items():
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
    for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(command, cwd=folder, check=True)


def _environment(folder: Path, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # As many threads as warm stages have: sums of another order differ in the last digit.
    own = {"PATH": path, "PYTHONPATH": f"{folder / 'hold'}{os.pathsep}{REPO}", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own, **more}


def _repro(stage: str) -> list[str]:
    """What a flow runs for a stage."""
    return [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", stage]


@contextmanager
def held(folder: Path, stage: str, moment: str) -> Iterator[list[psutil.Process]]:
    """A stage under its supervisor, held when it is about to put `moment` in place.

    Yields all of its processes, the one that a worker runs its flow in first; the block must end all of them.
    """
    (folder / _HELD).unlink(missing_ok=True)
    log = folder / "log"
    supervised = [sys.executable, supervisor.__file__, "20", *_repro(stage)]
    with log.open("wb") as stream:
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, *supervised],
            cwd=folder,
            env=_environment(folder, **{_AT: moment}),
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    family = [psutil.Process(worker.pid)]
    try:
        end = time.monotonic() + PATIENCE_S
        while not (folder / _HELD).exists():
            assert worker.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.02)
        family += family[0].children(recursive=True)
        yield family
        worker.wait(PATIENCE_S)
        wait_until_gone(family)
    finally:
        for process in filter(runs, family):
            process.kill()
        worker.wait()


def wait_until_gone(family: Sequence[psutil.Process]) -> None:
    """Return when none of the processes runs; nobody need have asked for an orphan's exit code."""
    end = time.monotonic() + GONE_WITHIN_S
    while alive := [process for process in family if runs(process)]:
        assert time.monotonic() < end, f"{alive} go on"
        time.sleep(0.05)


def command_line(process: psutil.Process) -> list[str]:
    """A process's command, empty when it has ended."""
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def rerun(folder: Path, stage: str) -> None:
    """Run the stage to its end as a flow does, which waits where DVC's locks are in the way."""

    def work() -> None:
        done = subprocess.run(
            _repro(stage), cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise CommandError(done.stdout + done.stderr)

    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "get_run_logger", lambda: logging.getLogger("flow"))
        stages.when_free(work, stage)


def copy(source: Path, target: Path) -> None:
    """Copy a file or folder, and make what is above it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
