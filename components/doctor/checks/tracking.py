"""Checks that MLflow's server or database answers."""

from __future__ import annotations

from components.doctor.check import Check, Finding, Surroundings, fail, ok
from components.doctor.database import examine_database
from components.doctor.web import ask_mlflow
from components.tracking import tracking_uri

_KEY = "MLFLOW_TRACKING_URI"


def _examine(around: Surroundings) -> Finding:
    uri = tracking_uri()
    scheme = uri.partition(":")[0]
    if scheme in ("http", "https"):
        answer = ask_mlflow(around.environment, uri, "experiments/search?max_results=1")
        if answer.status_code != 200:
            return fail(f"{uri} answers {answer.status_code}", f"correct {_KEY}: it is no MLflow server")
        return ok(f"{uri} answers")
    if scheme == "file" or "://" not in uri:
        return fail(f"{uri} is a folder, which MLflow no longer takes", f"set {_KEY} to sqlite:///mlruns/mlflow.db")
    return examine_database(uri, _KEY)


CHECK = Check("tracking", 4, _examine)
