"""Stores of the tests' own, for all tests at once, and a guard in front of the user's.

`tests/conftest.py` imports it first, because libraries read some of these variables when they are imported.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).parents[2]
FOLDER = Path(tempfile.mkdtemp(prefix="cliptune-tests-")).resolve()
STORES = {
    "MLFLOW_TRACKING_URI": f"sqlite:///{FOLDER / 'mlruns' / 'mlflow.db'}",
    "PREFECT_HOME": str(FOLDER / "prefect"),
    "HF_HOME": str(FOLDER / "huggingface"),
}
_OTHERS = (
    *("MLFLOW_REGISTRY_URI", "CLIPTUNE_PARENT_RUN", "PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING"),
    *("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE"),
)
"""Variables of the user's that lead to other stores."""
_USERS = tuple(
    os.path.join(folder, name)
    for folder, names in (
        (REPO, ("mlruns", "state", "data", "models", "reports", "dvc.lock", "params.yaml")),
        (Path.home(), (".prefect", ".cache/huggingface")),
    )
    for name in names
)
"""Files and folders that no test may write."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
refused: list[str] = []
"""Paths that were to be written since a test began; product code may catch the error."""


def use() -> None:
    """Set the variables, and refuse to write into the user's stores in this process."""
    os.environ.update(STORES)
    for name in _OTHERS:
        os.environ.pop(name, None)
    atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
    sys.addaudithook(_guard)


def _guard(event: str, arguments: tuple[object, ...]) -> None:
    for path in _written(event, arguments):
        if not isinstance(path, str | bytes | os.PathLike):
            continue
        whole = os.path.abspath(os.fsdecode(path).removeprefix("file:"))
        if any(whole == users or whole.startswith(f"{users}{os.sep}") for users in _USERS):
            refused.append(whole)
            raise RuntimeError(f"a test writes to {whole}: give it a folder of its own (tmp_path, track_in)")


def _written(event: str, arguments: tuple[object, ...]) -> tuple[object, ...]:
    """The paths that an audit event is about to write."""
    if event == "open":
        path, _, flags = arguments
        return (path,) if isinstance(flags, int) and flags & _WRITING else ()
    if event == "sqlite3.connect":
        return arguments[:1]
    # The names below an open folder are those of `shutil.rmtree`, which has an event of its own.
    if event in ("os.remove", "os.rename", "os.mkdir", "shutil.rmtree") and arguments[-1] in (-1, None):
        is_there = event == "os.mkdir" and os.path.exists(str(arguments[0]))
        return () if is_there else arguments[: 2 if event == "os.rename" else 1]
    return ()


use()
