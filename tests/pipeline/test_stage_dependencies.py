"""The folders and settings that dvc.yaml declares are those that its stages read, in both directions."""

from __future__ import annotations

import pytest

from tests.pipeline import stage_dependencies as read

SETTINGS_PASSED_ON = {
    ("validate", "synthesize"): "the name of the model in summary.json; other models give other answers, an input",
    ("synthesize", "prepare"): "fields of rows in sources, which share their reader of files with tables of answers",
    ("seed", "dataset"): "the name of the MLflow experiment",
    ("repeat", "dataset"): "as for `seed`",
    ("repeat_mix", "dataset"): "as for `seed`",
    ("students", "base"): "only the context length of the base model, which `synthesize` checks again",
}
"""(stage, block) that a module of a stage names although no result of the stage depends on it, and why."""

MOST_FOLDERS, MOST_OF_RESEARCH = 7, 9
RESEARCH = ("seed", "repeat", "claims")


@pytest.mark.parametrize("stage", sorted(read.stages()))
def test_a_stage_declares_the_folders_and_settings_that_it_reads(stage: str) -> None:
    declared, inner = read.folders_declared(stage), read.folders_read(stage)
    covered = {outer: {name for name in inner if f"{name}/".startswith(f"{outer}/")} for outer in declared}
    assert set().union(*covered.values()) == inner
    assert all(covered.values())
    # A reader of dvc.yaml sees the rooms; core has parts, so that a line about pictures trains nothing anew.
    assert len(declared) <= (MOST_OF_RESEARCH if stage.startswith(RESEARCH) else MOST_FOLDERS)
    # Another device computes the same: nothing runs again.
    passed_on = {"device"} | {block for name, block in SETTINGS_PASSED_ON if name == stage}
    assert read.blocks_declared(stage) == read.blocks_read(stage) - passed_on


def test_stages_that_read_files_of_the_users_watch_the_path_of_their_block() -> None:
    watched = {name: [dep for dep in stage["deps"] if "depends." in dep] for name, stage in read.stages().items()}
    own = {name: [f"${{depends.{name}}}"] for name in ("prepare", "base", "students", "synthesize", "train")}
    others = {"seed": ["${depends.base}"], "repeat": ["${depends.train}"]}
    assert {name: paths for name, paths in watched.items() if paths} == own | others
