"""Checks that every work pool of prefect.yaml exists and has a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from components.core.errors import InputError
from components.doctor.check import Check, Finding, Surroundings, fail, not_used, ok, warn
from components.doctor.web import ask_prefect, prefect_url

FIRST = "local"
"""Without a worker here nothing runs; other pools may be somebody else's."""


def _examine(around: Surroundings) -> Finding:
    if not prefect_url(around.environment):
        return not_used("PREFECT_API_URL is not set")
    wanted = _pools(around.folder / "prefect.yaml")
    there = {pool["name"] for pool in ask_prefect(around.environment, "/work_pools/filter", {})}
    if missing := sorted(wanted - there):
        pools = ", ".join(missing)
        return fail(f"no work pool {pools}", f"make it: `prefect work-pool create {missing[0]} --type process`")
    online = {name: _online(around, name) for name in sorted(wanted)}
    detail = ", ".join(f"{name}: {count} online" for name, count in online.items())
    idle = [name for name, count in online.items() if count == 0]
    if FIRST in idle:
        return fail(detail, _fix(FIRST))
    return warn(detail, _fix(idle[0])) if idle else ok(detail)


def _fix(pool: str) -> str:
    return f"start one: `prefect worker start --pool {pool}`"


def _online(around: Surroundings, pool: str) -> int:
    workers = ask_prefect(around.environment, f"/work_pools/{pool}/workers/filter", {})
    return sum(worker.get("status") == "ONLINE" for worker in workers)


def _pools(path: Path) -> set[str]:
    try:
        content: Any = yaml.safe_load(path.read_text("utf-8"))
        return {deployment["work_pool"]["name"] for deployment in content["deployments"]}
    except FileNotFoundError:
        raise InputError(f"{path} is missing: run the command in the project's folder") from None
    except (yaml.YAMLError, KeyError, TypeError):
        raise InputError(f"{path} names no work pools: give each deployment a work_pool with a name") from None


CHECK = Check("work pools and workers", 3, _examine)
