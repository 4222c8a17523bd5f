"""No library reports its use to its makers, whatever started the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]
# A process that other variables mark as a test or as continuous integration reports nothing anyway.
_HIDING = ("CI", "PYTEST_CURRENT_TEST", "PYTEST_VERSION", "GITHUB_ACTIONS", "BUILD_ID", "BUILD_NUMBER")
_SWITCHES = ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "GX_ANALYTICS_ENABLED")
_CHECKS = {
    "mlflow": "from mlflow.telemetry import get_telemetry_client; print(get_telemetry_client())",
    "prefect": "from prefect._internal.analytics.enabled import is_telemetry_enabled as on; print(on() or None)",
    "huggingface_hub": "from huggingface_hub import constants as c; print(None if c.HF_HUB_DISABLE_TELEMETRY else 1)",
    "dvc": "from dvc.analytics import is_enabled as on; print(on() or None)",
}


@pytest.mark.parametrize("library", _CHECKS)
@pytest.mark.parametrize("given", [{}, {"DO_NOT_TRACK": "1"}])
def test_no_library_reports_its_use(library: str, given: dict[str, str], tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in (*_HIDING, *_SWITCHES)}
    environment = kept | given | {"PYTHONPATH": str(REPO), "HOME": str(tmp_path)}
    code = f"import components.tracking; {_CHECKS[library]}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "None"
