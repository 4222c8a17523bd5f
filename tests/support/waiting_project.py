"""A project for the flow `train-paraclip`, whose stages take no time except one, which waits for `let_go`."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.flows.conftest import Project
from tests.support.dvc_project import REPO, make_project

WAITING = "train@paraclip"
STAGES = {"prepare": [], "evaluate@base": ["prepare"], WAITING: ["prepare"], "evaluate@paraclip": [WAITING]}
_WAITS = f"""
import time
while name == "{WAITING}" and Path("wait").exists():
    time.sleep(0.02)
Path(f"{{name}}.ended").touch()
"""


def make_waiting_project(folder: Path) -> None:
    """Write the project and its scores."""
    make_project(folder, STAGES)
    work = folder / "work.py"
    work.write_text(work.read_text() + _WAITS)
    (folder / "wait").touch()
    (folder / "flows").symlink_to(REPO / "flows")
    raw = yaml.safe_load((folder / "params.yaml").read_text())
    raw["methods"]["other"] = {"method": "paraclip", "train_data": "data/validated/paraclip"}
    # Nothing scores the third, so that the flow neither compares nor promotes.
    raw["compare_encoders"] = ["base", "paraclip", "other"]
    (folder / "params.yaml").write_text(yaml.safe_dump(raw))
    Project(folder).score("base", "paraclip")


def let_go(folder: Path) -> None:
    """End the wait, now and in later runs."""
    (folder / "wait").unlink()


def has_ended(folder: Path, stage: str) -> bool:
    return (folder / f"{stage}.ended").exists()
