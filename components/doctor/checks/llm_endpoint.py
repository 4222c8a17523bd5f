"""Checks that the HTTP endpoints of language models are up and serve the wanted model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.doctor.check import Check, Finding, Surroundings, fail, not_used, ok, warn
from components.doctor.web import ask

_MEND = "start the server, or correct its URL under synthesize.models in params.yaml"


def _examine(around: Surroundings) -> Finding:
    wanted = around.settings.synthesize
    names = sorted({wanted.model_of(task) for task in wanted.tasks.values()})
    models = {name: wanted.models[name] for name in names if wanted.models.get(name, {}).get("engine") == "server"}
    if not models:
        return not_used("no prompt task is answered by a server")
    findings = [_served(around, name, url, model) for name, model in models.items() for url in model.get("urls", [])]
    worst = [finding for status in ("fail", "warn") for finding in findings if finding.status == status]
    return worst[0] if worst else ok("; ".join(finding.detail for finding in findings))


def _served(around: Surroundings, name: str, url: str, model: Mapping[str, Any]) -> Finding:
    key = around.environment.get(str(model.get("api_key_env", "OPENAI_API_KEY")), "")
    answer = ask(f"{url.rstrip('/')}/models", _MEND, {"Authorization": f"Bearer {key}"} if key else None)
    if answer.status_code != 200:
        return fail(f"{name}: {url} answers {answer.status_code}", "its URL must end with /v1")
    try:
        served = [str(one["id"]) for one in answer.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return warn(f"{name}: {url} does not say what it serves", "see that it is an OpenAI-compatible server")
    if model.get("model") not in served:
        shown = ", ".join(served[:5])
        return fail(f"{name}: {url} serves {shown}, not {model.get('model')}", "start it with that, or name another")
    return ok(f"{name}: {url} serves {model.get('model')}")


CHECK = Check("LLM endpoint", 9, _examine, needs_settings=True)
