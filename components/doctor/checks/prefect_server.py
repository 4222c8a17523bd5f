"""Checks that the Prefect server answers, accepts the credentials and has the installed version."""

from __future__ import annotations

from importlib.metadata import version

from components.doctor.check import Check, Finding, Surroundings, not_used, ok, warn
from components.doctor.prefect_api import call, url_of


def _examine(around: Surroundings) -> Finding:
    url = url_of(around.environment)
    if not url:
        return not_used("PREFECT_API_URL is not set; `make stack` prints its value")
    call(around.environment, "/health")
    theirs, ours = str(call(around.environment, "/admin/version").json()), version("prefect")
    if theirs != ours:
        return warn(f"{url} runs Prefect {theirs}, here is {ours}", "give both the same version")
    return ok(f"{url}, Prefect {theirs}")


CHECK = Check("Prefect API", 2, _examine)
