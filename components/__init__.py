"""The stages of cliptune as plain Python, which never imports Prefect."""

import os

# The libraries below ask for them when they are imported, whatever started the process. MLflow takes DO_NOT_TRACK=1 for
# no answer.
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
}.items():
    os.environ.setdefault(_name, _value)
