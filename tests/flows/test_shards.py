"""Work that workers share, on threads, Ray and Dask: each part is made once, with the bytes of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
import torch
import yaml

import flows.shards
import flows.stages
import flows.synthesize
from components.captions.synthesize import run
from components.core.settings import Scale, Settings, load_settings
from components.core.system.errors import InputError
from components.core.system.stage_graph import outdated, read_graph
from components.core.tables.records import GENERATIONS
from components.data import prepare
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder
from flows.shards import ShardResult, make_runner
from tests.conftest import TINY
from tests.flows.conftest import REPO, Project, flow_runs_named, run_module, with_server
from tests.support.fake_llm_process import FakeServer, Log, fake_llm
from tests.support.server_project import ServerProject
from tests.support.shard_making import make_shards
from tests.support.waiting import wait_until

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


ROWS = 12
TASK = "paraphrase_1"

PIPELINE = """
stages:
  prepare:
    cmd: echo nothing to prepare
  synthesize:
    foreach: [paraphrase_1]
    do:
      cmd: python -m components.captions.synthesize --task ${item}
      deps: [data/pairs/train.parquet]
      outs:
        - data/captions/paraphrases/${item}.parquet
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeServer, Path]]:
    """A server whose answers follow from the questions, and its log."""
    log = tmp_path_factory.mktemp("server") / "log.jsonl"
    with fake_llm("--log", str(log)) as running:
        yield running, log


@pytest.fixture
def asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_params: dict[str, Any], server: tuple[FakeServer, Path]
) -> ServerProject:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    return ServerProject.make(tmp_path, raw_params, ROWS, server[0].url)


@pytest.fixture
def unsharded(asking: ServerProject, raw_params: dict[str, Any]) -> pa.Table:
    """The table that one process makes of the same questions with a store of its own."""
    settings = Settings.model_validate(raw_params)
    alone = settings.synthesize.model_copy(update={"store": f"sqlite:///{asking.folder / 'alone.db'}"})
    run(settings.model_copy(update={"synthesize": alone}), TASK, asking.folder / "alone")
    return GENERATIONS.read(asking.folder / "alone" / "paraphrases" / f"{TASK}.parquet")


def _listening() -> set[str]:
    """Addresses that this process and its children listen on."""
    me = psutil.Process()
    pids = {me.pid, *(child.pid for child in me.children(recursive=True))}
    sockets = [found for found in psutil.net_connections("inet") if found.pid in pids]
    return {found.laddr.ip.removeprefix("::ffff:") for found in sockets if found.status == psutil.CONN_LISTEN}


@pytest.mark.timeout(900)
@with_server
@pytest.mark.parametrize("runner", ["threads", "ray", "dask"])
def test_two_workers_answer_each_question_once(
    asking: ServerProject,
    unsharded: pa.Table,
    server: tuple[FakeServer, Path],
    monkeypatch: pytest.MonkeyPatch,
    runner: str,
) -> None:
    from prefect import get_client
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.flows import load_flow_from_entrypoint

    if runner == "threads":
        subprocess.run([*flows.stages.DVC, "init", "--no-scm", "-q"], check=True)
    else:
        # Real DVC takes seconds for each answer; one of the runners has it.
        fake = Project(asking.folder)
        fake.fake_dvc(monkeypatch, f"synthesize@{TASK}:")
        fake.plan({f"synthesize@{TASK}": run_module("components.captions.synthesize", "--task", TASK)})
    seen: dict[str, Any] = {}
    over_shards = flows.synthesize.over_shards

    def spy(*arguments: Any) -> list[ShardResult]:
        seen["results"] = over_shards(*arguments)
        seen["addresses"] = _listening()
        return seen["results"]

    monkeypatch.setattr(flows.synthesize, "over_shards", spy)
    before = Log.read(server[1]).answers
    # As a Prefect worker does it: what it pickles for Ray must have a name that Ray's processes know.
    flow = load_flow_from_entrypoint("flows.synthesize.synthesize_captions")
    name = f"on {runner}, {os.getpid()}"
    # Ray gives itself 30 s to start, which a busy machine may not keep.
    flow.with_options(flow_run_name=name, retries=1)(shards=2, runner=runner)

    questions = Log.read(server[1]).answers - before
    assert questions == Counter(dict.fromkeys(questions, 1))
    assert len(questions) == ROWS
    assert asking.table().equals(unsharded)
    assert [result.counts["generated"] for result in seen["results"]] == [ROWS // 2] * 2
    workers = [result.worker.split(":") for result in seen["results"]]
    assert workers[0] != workers[1]
    assert (workers[0][1] == workers[1][1] == str(os.getpid())) == (runner == "threads")
    assert seen["addresses"] <= {"127.0.0.1"}
    if runner == "threads":
        assert outdated(read_graph(), [f"synthesize@{TASK}"]) == set()

    with get_client(sync_client=True) as client:
        named = flow_runs_named(name)
        (flow_run,) = client.read_flow_runs(flow_run_filter=named)
        runs = {task_run.name: task_run for task_run in client.read_task_runs(flow_run_filter=named)}
        assert runs.keys() >= {f"{TASK} 0/2", f"{TASK} 1/2"}
        assert all(task_run.state is not None and task_run.state.is_completed() for task_run in runs.values())
        of_run = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run.id]))
        line = f"{TASK} shard 1/2: replayed 0, generated {ROWS // 2}"
        wait_until(lambda: any(line in log.message for log in client.read_logs(of_run)), 60)


def test_runners_join_a_cluster_at_its_address_and_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for runner, address, package in (
        ("ray", "ray://127.0.0.1:10001", "prefect_ray"),
        ("dask", "tcp://127.0.0.1:8786", "prefect_dask.task_runners"),
    ):
        scale = Scale.model_validate({"runner": runner, "address": address})
        made: Any = make_runner(scale, "embed")
        assert made.address == address
        monkeypatch.setitem(sys.modules, package, None)
        fault = rf"embed\.scale\.runner '{runner}' lacks a package .*: run `make"
        with pytest.raises(InputError, match=fault):
            make_runner(scale, "embed")
