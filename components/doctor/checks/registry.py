"""Checks that the registry answers, and tells its champion."""

from __future__ import annotations

from components.core.errors import InputError
from components.doctor.check import Check, Finding, Surroundings, not_used, ok
from components.doctor.database import rows
from components.doctor.web import ask_mlflow
from components.tracking import tracking_uri

_ALIASES = "SELECT alias, version FROM registered_model_aliases WHERE name = :model ORDER BY alias"


def _examine(around: Surroundings) -> Finding:
    model, uri = around.settings.promote.model, tracking_uri()
    try:
        aliases = _asked(around, uri, model) if uri.startswith("http") else _read(uri, model)
    except InputError as error:
        return not_used(f"the tracking store does not say: {str(error).partition(': ')[0]}")
    if "champion" not in aliases:
        return not_used(f"'{model}' has no champion yet; `cliptune promote` chooses one")
    return ok(f"{model}: " + ", ".join(f"{alias} is version {version}" for alias, version in aliases.items()))


def _asked(around: Surroundings, uri: str, model: str) -> dict[str, str]:
    answer = ask_mlflow(around.environment, uri, f"registered-models/get?name={model}")
    if answer.status_code != 200:
        return {}
    aliases = answer.json()["registered_model"].get("aliases", [])
    return {str(one["alias"]): str(one["version"]) for one in aliases}


def _read(uri: str, model: str) -> dict[str, str]:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return {row[0]: row[1] for row in rows(uri, _ALIASES, model=model)}
    except SQLAlchemyError:
        raise InputError("it does not answer: fix the line 'tracking' first") from None


CHECK = Check("registry", 5, _examine, needs_settings=True)
