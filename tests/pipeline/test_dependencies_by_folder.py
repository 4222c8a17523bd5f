"""The `deps` of each stage of dvc.yaml have the folder or file of every module that its command imports.

`python -m tests.pipeline.test_dependencies_by_folder train` prints the smallest list of folders of a stage.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.pipeline.stage_dependencies import REPO, code_read, files_below, stages

NO_RESULT = "components/core/system"
"""Modules that change no result: errors, progress, processes and the like. No stage declares them."""
TRACKING = "components/tracking"
"""Records what a stage did; of a stage's outputs, only the id of the run depends on it."""


def minimal_folders(stage: str, most: float = 0.5) -> list[str]:
    """The folders, or single files, of the modules that a stage imports.

    A folder stands for its files if the stage reads more than the share `most` of them; its other files then also
    invalidate the stage.
    """
    wanted = {path for path in code_read(stage) if not path.is_relative_to(NO_RESULT)}

    def cover(folder: Path) -> list[str]:
        inside = set(files_below(str(folder)))
        used = inside & wanted
        if not used:
            return []
        if folder != Path("components") and len(used) > most * len(inside):
            return [str(folder)]
        children = (path.relative_to(REPO) for path in sorted((REPO / folder).iterdir()))
        return [
            line
            for child in children
            for line in (cover(child) if (REPO / child).is_dir() else [str(child)] if child in wanted else [])
        ]

    return cover(Path("components"))


@pytest.mark.skip(reason="dvc.yaml lists single files; its folders come with the next cut of the packages")
@pytest.mark.parametrize("stage", sorted(stages()))
def test_a_stages_modules_are_in_its_folders(stage: str) -> None:
    declared = [Path(name) for name in stages()[stage]["deps"] if name.startswith("components/")]
    known = [*declared, Path(NO_RESULT), Path(TRACKING)]
    outside = {str(path) for path in code_read(stage) if not any(path.is_relative_to(place) for place in known)}
    assert not outside, f"{stage} reads and does not declare {sorted(outside)}"
    unused = [str(place) for place in declared if not any(path.is_relative_to(place) for path in code_read(stage))]
    assert not unused, f"{stage} declares and does not read {unused}"


if __name__ == "__main__":
    for _stage in sys.argv[1:] or stages():
        print(f"{_stage}:", *(f"- {line}" for line in minimal_folders(_stage)), sep="\n  ")
