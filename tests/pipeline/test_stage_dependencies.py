"""The code and settings that dvc.yaml declares are those that its stages read, in both directions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline import stage_dependencies as read

SETTINGS_PASSED_ON = {
    ("prepare", "methods"): "the entries that make no use of a query log's weights are only named to the user",
    ("seed", "world"): "its name is that of the experiment that the runs are logged to",
    ("repeat", "world"): "as for `seed`",
    ("repeat_mix", "world"): "as for `seed`",
    ("students", "base"): "the base model's name gives the context length alone, which `synthesize` checks again",
}
"""(stage, block) that a module of a stage names although no result of the stage depends on it, and why."""


@pytest.mark.parametrize("stage", sorted(read.stages()))
def test_code_that_is_read_is_declared(stage: str) -> None:
    declared, found = read.code_declared(stage), read.code_read(stage)
    assert not found - declared, f"{stage} reads and does not declare {_names(found - declared)}"
    assert not declared - found, f"{stage} declares and does not read {_names(declared - found)}"


@pytest.mark.parametrize("stage", sorted(read.stages()))
def test_settings_that_are_read_are_declared(stage: str) -> None:
    declared = read.blocks_declared(stage)
    found = {block for block in read.blocks_read(stage) if (stage, block) not in SETTINGS_PASSED_ON}
    assert not found - declared, f"{stage} reads and does not declare {sorted(found - declared)}"
    assert not declared - found, f"{stage} declares and does not read {sorted(declared - found)}"


def test_every_file_that_is_no_module_has_a_reader() -> None:
    known = {path for asset in read.ASSETS for path in read.files_below(asset)}
    others = {path for path in read.files_below("components") if path.suffix != ".py"}
    assert others <= known, f"name who opens {_names(others - known)} in stage_dependencies.ASSETS"


def _names(files: set[Path]) -> str:
    return ", ".join(sorted(str(file) for file in files))
