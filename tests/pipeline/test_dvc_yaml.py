"""dvc.yaml says what the stages really read, and one method's settings touch one method's stages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).parents[2]


def _stages() -> dict[str, dict[str, object]]:
    raw = yaml.safe_load((REPO / "dvc.yaml").read_text("utf-8"))["stages"]
    return {name: stage.get("do", stage) for name, stage in raw.items()}


@pytest.mark.parametrize("name", sorted(_stages()))
def test_commands_are_modules_and_code_dependencies_exist(name: str) -> None:
    stage = _stages()[name]
    module = str(stage["cmd"]).split()[2]
    assert importlib.util.find_spec(module) is not None
    for dependency in stage["deps"]:  # type: ignore[attr-defined]
        if str(dependency).startswith("components") and "$" not in dependency:
            assert (REPO / dependency).exists(), dependency


def test_a_stages_own_folder_is_among_its_dependencies() -> None:
    for name, stage in _stages().items():
        module = Path(str(stage["cmd"]).split()[2].replace(".", "/"))
        covered = [module, module.parent, module.with_suffix(".py")]
        assert any(str(path) in stage["deps"] for path in covered), name  # type: ignore[operator]


def test_stages_that_read_files_of_the_users_watch_the_path_of_their_block() -> None:
    watched = {name: [dep for dep in stage["deps"] if "depends." in dep] for name, stage in _stages().items()}  # type: ignore[attr-defined]
    own = {name: [f"${{depends.{name}}}"] for name in ("prepare", "base", "students", "synthesize", "train")}
    assert {name: paths for name, paths in watched.items() if paths} == own | {
        "seed": ["${depends.base}"],
        "repeat": ["${depends.train}"],
    }
