"""No library reports its use to its makers, whatever started the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[4]
# A process that other variables mark as a test or as continuous integration reports nothing anyway.
_HIDING = ("CI", "PYTEST_CURRENT_TEST", "PYTEST_VERSION", "GITHUB_ACTIONS", "BUILD_ID", "BUILD_NUMBER")
_SWITCHES = ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "DVC_NO_ANALYTICS")
_CHECKS = {
    "mlflow": "import components.core.tracking; from mlflow.telemetry import get_telemetry_client as of; print(of())",
    "prefect": "import flows; from prefect._internal.analytics.enabled import is_telemetry_enabled as on; print(on())",
    "dvc": "from dvc.analytics import is_enabled as on; print(on())",
}


@pytest.mark.parametrize("library", _CHECKS)
@pytest.mark.parametrize("given", [{}, {"DO_NOT_TRACK": "1"}])
def test_no_library_reports_its_use(library: str, given: dict[str, str], tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in (*_HIDING, *_SWITCHES)}
    environment = kept | given | {"PYTHONPATH": str(REPO), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", _CHECKS[library]]
    done = subprocess.run(command, env=environment, cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("None", "False")
