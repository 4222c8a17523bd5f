"""Checks that the Prefect server answers, accepts the credentials and has the installed version."""

from __future__ import annotations

from importlib.metadata import version

from components.doctor.check import Check, Finding, Surroundings, not_used, ok, warn
from components.doctor.web import ask_prefect, prefect_url


def _examine(around: Surroundings) -> Finding:
    url = prefect_url(around.environment)
    if not url:
        return not_used("PREFECT_API_URL is not set; `make stack` prints its value")
    ask_prefect(around.environment, "/health")
    theirs, ours = str(ask_prefect(around.environment, "/admin/version")), version("prefect")
    if theirs != ours:
        return warn(f"{url} runs Prefect {theirs}, here is {ours}", "give both the same version")
    return ok(f"{url}, Prefect {theirs}")


CHECK = Check("Prefect API", 2, _examine)
