"""The folders and settings that dvc.yaml declares are those that its stages read, in both directions."""

from __future__ import annotations

import pytest

from tests.pipeline import stage_dependencies as read

SETTINGS_PASSED_ON = {
    ("prepare", "methods"): "entries that do not use a query log's weights are only printed",
    ("validate", "synthesize"): "the name of the model in summary.json; other models give other answers, an input",
    ("seed", "dataset"): "the name of the MLflow experiment",
    ("repeat", "dataset"): "as for `seed`",
    ("repeat_mix", "dataset"): "as for `seed`",
    ("students", "base"): "only the context length of the base model, which `synthesize` checks again",
}
"""(stage, block) that a module of a stage names although no result of the stage depends on it, and why."""


@pytest.mark.parametrize("stage", sorted(read.stages()))
def test_folders_that_are_read_are_declared(stage: str) -> None:
    declared, used = read.folders_declared(stage), read.folders_read(stage)
    assert not used - declared, f"{stage} reads and does not declare {sorted(used - declared)}"
    assert not declared - used, f"{stage} declares and does not read {sorted(declared - used)}"


@pytest.mark.parametrize("stage", sorted(read.stages()))
def test_settings_that_are_read_are_declared(stage: str) -> None:
    declared = read.blocks_declared(stage)
    used = {block for block in read.blocks_read(stage) if (stage, block) not in SETTINGS_PASSED_ON}
    assert not used - declared, f"{stage} reads and does not declare {sorted(used - declared)}"
    assert not declared - used, f"{stage} declares and does not read {sorted(declared - used)}"
