"""Stages that workers share: each part is made once, with the bytes of one process; Ray and Dask: test_runners.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import flows.shards
import flows.stages
from components.core.settings import load_settings
from components.core.system import stage_graph
from components.core.system.processes import CommandError
from components.data import prepare
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder
from flows.shards import ShardResult
from tests.conftest import TINY
from tests.flows.conftest import Project
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

DVC = """
import json, subprocess, sys
from pathlib import Path

modules = {"prepare": "components.data.prepare", "embed": "components.encoders.embed"}
outputs = {"prepare": "data/pairs", "embed": "data/embeddings"}
match sys.argv[1:]:
    case ["dag", "--dot"]:
        print('"prepare";\\n"embed";\\n"prepare" -> "embed";')
    case ["--wait-for-lock", "status", "--json", *stages]:
        print(json.dumps({stage: ["changed"] for stage in stages if not Path(outputs[stage]).exists()}))
    case ["--wait-for-lock", "repro", "--single-item", stage]:
        sys.exit(subprocess.run([sys.executable, "-m", modules[stage]]).returncode)
"""

SHARD = """
import json, os, sys
from pathlib import Path

_, _, shard = sys.argv
print(f"prepare {shard}", file=Path("ran.txt").open("a"))
exec(json.loads(Path("shards.json").read_text()).get(shard, ""))
print(f"prepare shard {shard}: made 1")
"""


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_params: dict[str, Any]) -> Path:
    """A project with pictures in shards and a base; its DVC is a stand-in that runs the real stages."""
    make_shards(tmp_path / "pictures", TARS, SAMPLES)
    torch.manual_seed(0)
    Encoder.create("tiny", "tiny", TINY, "test").save(tmp_path / "models/base")
    raw_params["prepare"] = {"source": "webdataset", "folder": "pictures", "counts": COUNTS}
    raw_params["embed"] = {"batch_size": 2, "part": PART, "device": "cpu"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params))
    (tmp_path / "stand_in.py").write_text(DVC)
    (tmp_path / "flow_file.py").write_text(FLOW)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    # The last bits of features are those of the number of threads, which Ray and Dask set for their workers.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for module in (flows.stages, stage_graph):
        monkeypatch.setattr(module, "DVC", (sys.executable, str(tmp_path / "stand_in.py")))
    return tmp_path


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("prefect_server")
def test_two_workers_make_what_one_process_makes(
    pictures: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
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
        raw_params[stage]["scale"] = {"runner": "threads", "shards": 2, "workers": 2}
    (pictures / "params.yaml").write_text(yaml.safe_dump(raw_params))
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


@pytest.fixture
def stand_in(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose `prepare` is shared, and whose shards are stand-ins."""
    module = project.folder / "components" / "data"
    module.mkdir(parents=True)
    for folder in (module.parent, module):
        (folder / "__init__.py").touch()
    (module / "prepare.py").write_text(SHARD)
    (project.folder / "shards.json").write_text("{}")
    _share(project, {"shards": 3})
    monkeypatch.setattr(flows.shards.run_shard, "retry_delay_seconds", [0])
    return project


def _share(project: Project, scale: dict[str, Any] | None) -> None:
    path = project.folder / "params.yaml"
    raw = yaml.safe_load(path.read_text())
    raw["prepare"]["scale"] = scale
    path.write_text(yaml.safe_dump(raw))


def _lines(project: Project) -> list[str]:
    return (project.folder / "ran.txt").read_text().splitlines()


def _run() -> None:
    from prefect import flow

    from flows.pipeline import bring_up_to_date

    flow(bring_up_to_date)(["base"])


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_shards_come_before_their_stage_and_none_where_it_is_up_to_date_or_not_shared(stand_in: Project) -> None:
    _run()
    lines = _lines(stand_in)
    assert sorted(lines[:3]) == [f"prepare {number}/3" for number in range(3)]
    assert lines[3:] == ["prepare", "base"]
    (stand_in.folder / "done" / "base").unlink()
    _run()
    assert _lines(stand_in)[5:] == ["base"]
    (stand_in.folder / "done" / "prepare").unlink()
    _share(stand_in, None)
    _run()
    assert _lines(stand_in)[6:] == ["prepare", "base"]


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_what_the_user_must_fix_fails_the_stage_before_it_begins(stand_in: Project) -> None:
    stand_in.folder.joinpath("shards.json").write_text("""{"1/3": "sys.exit('error: pictures is missing')"}""")
    with pytest.raises(CommandError) as failure:
        _run()
    assert str(failure.value).startswith(
        "1 of 3 shards of prepare failed; the first error: shard 1/3 of prepare failed"
    )
    assert str(failure.value).endswith("error: pictures is missing")
    assert sorted(_lines(stand_in)) == [f"prepare {number}/3" for number in range(3)]
