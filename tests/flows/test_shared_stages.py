"""Stages that workers share: each part is made once, with the bytes of one process; Ray and Dask: test_runners.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import flows.shards
from components.core.settings import load_settings
from components.data import prepare
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder
from flows.shards import ShardResult
from tests.conftest import TINY
from tests.flows.conftest import Project, run_module, with_server
from tests.support.shard_making import make_shards

TARS, SAMPLES, PART = 5, 6, 4
COUNTS = {"train": 22, "val": 4, "test": 4}
MODULES = {"prepare": "components.data.prepare", "embed": "components.encoders.embed"}

FLOW = """
from prefect import flow
from flows.pipeline import bring_up_to_date

@flow
def shared():
    bring_up_to_date(["embed"])
"""


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_params: dict[str, Any]) -> Project:
    """A project with pictures in shards and a base; its DVC is a stand-in that runs the real stages."""
    make_shards(tmp_path / "pictures", TARS, SAMPLES)
    torch.manual_seed(0)
    Encoder.create("tiny", "tiny", TINY, "test").save(tmp_path / "models/base")
    raw_params["prepare"] = {"source": "webdataset", "folder": "pictures", "counts": COUNTS}
    raw_params["embed"] = {"batch_size": 2, "part": PART}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params))
    (tmp_path / "flow_file.py").write_text(FLOW)
    monkeypatch.chdir(tmp_path)
    # The last bits of features are those of the number of threads, which Ray and Dask set for their workers.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = Project(tmp_path)
    made.fake_dvc(monkeypatch, "prepare:\nembed: prepare")
    made.plan({stage: run_module(module) for stage, module in MODULES.items()})
    return made


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.timeout(900)
@with_server
def test_two_workers_make_what_one_process_makes(pictures: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.flows import load_flow_from_entrypoint

    settings = load_settings()
    prepare.run(settings, Path("alone/pairs"), Path("alone/evaluation"))
    embed.run(settings, Path("alone/embeddings"), Path("alone/pairs"))
    for path in Path("state/prepare").iterdir():
        path.unlink()

    seen: dict[str, list[ShardResult]] = {}
    parts: dict[str, int] = {}
    over_shards = flows.shards.over_shards

    def spy(started: Any, stage: str, *arguments: Any) -> list[ShardResult]:
        seen[stage] = over_shards(started, stage, *arguments)
        files = Path("state", stage).rglob("*")
        parts[stage] = len([path for path in files if path.is_file()])
        return seen[stage]

    monkeypatch.setattr(flows.shards, "over_shards", spy)
    for stage in MODULES:
        pictures.set_scale(stage, {"runner": "threads", "shards": 2, "workers": 2})
    # As a Prefect worker does it; `train` and `compare` are loaded from files too.
    load_flow_from_entrypoint("flow_file.py:shared")()

    assert _bytes(Path("data")) == _bytes(Path("alone"))
    made = {stage: [result.counts["made"] for result in results] for stage, results in seen.items()}
    # Parts of `embed` are four rows each: six of split train, one each of the others.
    assert made == {"prepare": [3, 2], "embed": [5, 3]}
    assert parts == {"prepare": 5, "embed": 8}
    for results in seen.values():
        workers = [result.worker.split(":") for result in results]
        assert workers[0] != workers[1]
        assert workers[0][1] == workers[1][1] == str(os.getpid())


@with_server
def test_shards_run_before_their_stage_unless_it_is_up_to_date_or_has_no_scale(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect import flow

    from flows.pipeline import bring_up_to_date

    run = flow(bring_up_to_date)
    project.fake_shards(monkeypatch, "components/data/prepare.py")
    project.set_scale("prepare", {"shards": 3})
    run(["base"])
    ran = project.ran()
    assert sorted(ran[:3]) == [f"prepare {number}/3" for number in range(3)]
    assert ran[3:] == ["prepare", "base"]
    (project.folder / "done" / "base").unlink()
    run(["base"])
    assert project.ran()[5:] == ["base"]
    (project.folder / "done" / "prepare").unlink()
    project.set_scale("prepare", None)
    run(["base"])
    assert project.ran()[6:] == ["prepare", "base"]
