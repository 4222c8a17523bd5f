"""The headers with credentials for HTTP requests to MLflow's server."""

from __future__ import annotations

import base64
from collections.abc import Mapping


def headers(environment: Mapping[str, str]) -> dict[str, str]:
    """The credentials of the environment, as MLflow's own client sends them."""
    user, password = (environment.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    if user and password:
        return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
    if token := environment.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    return {}
