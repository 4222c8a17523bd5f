"""DVC stages as Prefect tasks. DVC decides what is out of date; Prefect caches nothing."""

from __future__ import annotations

import re
import subprocess
import sys

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.commands import CommandError, run_logged

DVC = (sys.executable, "-m", "dvc")


def needed_stages(targets: list[str]) -> list[str]:
    """The stages that `targets` need, themselves included, in the order of dvc.yaml.

    Raises:
        CommandError: DVC cannot read the pipeline or does not know a target.
    """
    wanted = set(targets)
    for target in targets:
        wanted |= set(re.findall(r'^"([^"]+)";$', _ask("dag", "--dot", target), flags=re.MULTILINE))
    return [stage for stage in _ask("stage", "list", "--name-only").split() if stage in wanted]


@task(cache_policy=NO_CACHE)
def run_stage(name: str) -> None:
    """Bring one stage up to date, waiting for other runs of the pipeline.

    Raises:
        CommandError: the stage failed; the message has its last lines.
    """
    # Only with --wait-for-lock and single stages can two flows work in one checkout.
    run_logged([*DVC, "--wait-for-lock", "repro", "--single-item", name], f"stage {name}")


def _ask(*arguments: str) -> str:
    done = subprocess.run([*DVC, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(f"`dvc {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout
