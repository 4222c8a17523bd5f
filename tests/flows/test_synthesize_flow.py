"""The synthesis flow: shards first, then their task's table; passing faults are retried, and no process remains."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import flows.commands
import flows.shards
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.system.processes import CommandError
from components.core.tables.records import GENERATIONS
from flows.synthesize import chosen_tasks, scale_of, synthesize_captions
from tests.flows.conftest import Project

TASKS = ("paraphrase_1", "paraphrase_2")
STAGE = """
import json, os, sys, time
from pathlib import Path
from typing import Any

_, name, _, shard = sys.argv[1:]
print(f"{name} {shard}", file=Path("ran.txt").open("a"))
exec(json.loads(Path("shards.json").read_text()).get(f"{name} {shard}", ""))
print(f"{name} shard {shard}: replayed 2, generated 3, failed 1, rejected 0, skipped 0")
"""
SLEEP = "Path('pid.txt').write_text(str(os.getpid())); time.sleep(120)"


@pytest.fixture
def checkout(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose stage `synthesize` is a stand-in too."""
    stage = project.folder / "components" / "captions"
    stage.mkdir(parents=True)
    for package in (stage.parent, stage):
        (package / "__init__.py").touch()
    (stage / "synthesize.py").write_text(STAGE)
    for task in TASKS:
        columns = {"id": ["a", "b", "c"], "sample": [0] * 3, "source": ["s"] * 3, "key": ["k"] * 3}
        rest = {"accepted": [True, False, True], "text": ["t", None, "t"], "reason": [None, "unparsable", None]}
        empty = dict.fromkeys(set(GENERATIONS.schema.names) - columns.keys() - rest.keys(), [None] * 3)
        path = project.folder / "data" / "captions" / "paraphrases" / f"{task}.parquet"
        GENERATIONS.write(path, {**columns, **rest, **empty})
    monkeypatch.setattr(flows.shards.run_shard, "retry_delay_seconds", [0])
    _plan(project)
    return project


def _plan(checkout: Project, **shards: str) -> None:
    """Let shards of paraphrase_1 do something before they print their counts: `one="..."` is code for shard 1/2."""
    numbers = {"zero": "paraphrase_1 0/2", "one": "paraphrase_1 1/2"}
    (checkout.folder / "shards.json").write_text(json.dumps({numbers[key]: code for key, code in shards.items()}))


def _ran(checkout: Project) -> list[str]:
    return (checkout.folder / "ran.txt").read_text().splitlines()


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_shards_of_a_task_come_after_what_it_reads_and_before_its_table(checkout: Project) -> None:
    from prefect.artifacts import Artifact

    synthesize_captions(tasks=["paraphrase_2"], shards=3)
    ran = _ran(checkout)
    assert ran[0] == "prepare"
    assert sorted(ran[1:4]) == [f"paraphrase_1 {number}/3" for number in range(3)]
    assert ran[4] == "synthesize@paraphrase_1"
    assert sorted(ran[5:8]) == [f"paraphrase_2 {number}/3" for number in range(3)]
    assert ran[8:] == ["synthesize@paraphrase_2"]
    table = Artifact.get("captions-table")
    assert table is not None
    counts = {"shards": 3, "rows": 3, "replayed": 6, "generated": 9, "failed": 3, "rejected": 1}
    assert json.loads(str(table.data)) == [{"task": task, **counts} for task in TASKS]


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_a_task_that_is_up_to_date_needs_no_shards(checkout: Project) -> None:
    (checkout.folder / "done").mkdir()
    (checkout.folder / "done" / "synthesize@paraphrase_1").touch()
    synthesize_captions(tasks=["paraphrase_2"])
    shards = [f"paraphrase_2 {number}/2" for number in range(2)]
    ran = _ran(checkout)
    assert ran[:2] == ["prepare", "synthesize@paraphrase_1"]
    assert sorted(ran[2:4]) == shards
    assert ran[4:] == ["synthesize@paraphrase_2"]


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_a_fault_of_the_user_fails_the_flow_at_once_and_other_shards_end(checkout: Project) -> None:
    _plan(
        checkout,
        zero="print('here'); sys.exit('error: data/pairs/train.parquet is missing')",
        one="time.sleep(1); Path('ended.txt').touch()",
    )
    with pytest.raises(CommandError) as failure:
        synthesize_captions(tasks=["paraphrase_1"])
    message = str(failure.value)
    assert "1 of 2 shards of paraphrase_1 failed" in message
    assert "shard 0/2 of paraphrase_1 failed with exit code 1" in message
    assert message.endswith("here\nerror: data/pairs/train.parquet is missing")
    assert (checkout.folder / "ended.txt").exists()
    assert sorted(_ran(checkout)) == ["paraphrase_1 0/2", "paraphrase_1 1/2", "prepare"]


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_a_shard_that_the_system_killed_gets_another_try(checkout: Project) -> None:
    _plan(checkout, one="Path('once').exists() or (Path('once').touch(), os.kill(os.getpid(), 9))")
    synthesize_captions(tasks=["paraphrase_1"])
    assert _ran(checkout).count("paraphrase_1 1/2") == 2
    assert _ran(checkout).count("paraphrase_1 0/2") == 1
    assert _ran(checkout)[-1] == "synthesize@paraphrase_1"


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize("by", ["an interrupt", "the server's state"])
def test_an_ended_flow_leaves_no_process(checkout: Project, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    from prefect import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
    from prefect.states import Cancelling

    monkeypatch.setattr(flows.commands, "_POLLS_PER_REQUEST", 1)
    _plan(checkout, one=SLEEP)
    file = checkout.folder / "pid.txt"

    def end() -> None:
        _wait("the shard's start", lambda: file.exists() and file.read_text() != "")
        if by == "an interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            return
        with get_client(sync_client=True) as client:
            (run,) = client.read_flow_runs(
                flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[f"ended by {by}"]))
            )
            client.set_flow_run_state(run.id, Cancelling())

    thread = threading.Thread(target=end)
    thread.start()
    # Whether the other shard has ended by then depends on the machine.
    message = None if by == "an interrupt" else r"shard ./2 of paraphrase_1 stopped with its flow"
    with pytest.raises(KeyboardInterrupt if message is None else CommandError, match=message):
        synthesize_captions.with_options(flow_run_name=f"ended by {by}")(tasks=["paraphrase_1"])
    thread.join()
    pid = int(file.read_text())
    _wait("the end of the shard", lambda: not psutil.pid_exists(pid))
    assert _ran(checkout).count("paraphrase_1 1/2") == 1


def _wait(what: str, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not until():
        assert time.monotonic() < deadline, f"{what} took too long"
        time.sleep(0.02)


def test_unknown_task_is_named_with_all_tasks(settings: Settings) -> None:
    assert chosen_tasks(settings, None) == list(settings.synthesize.tasks)
    assert chosen_tasks(settings, ["rewrite"]) == ["rewrite"]
    with pytest.raises(InputError, match=r"synthesize\.tasks\.paraphrase_3: choose from paraphrase_1, paraphrase_2"):
        chosen_tasks(settings, ["paraphrase_3"])


def test_parameters_go_before_params_yaml_and_an_address_belongs_to_its_runner(raw_params: dict[str, Any]) -> None:
    raw_params["synthesize"]["scale"] = {"shards": 8, "runner": "ray", "workers": 3, "address": "ray://127.0.0.1:1"}
    settings = Settings.model_validate(raw_params)
    assert scale_of(settings, None, None) == settings.synthesize.scale
    assert scale_of(settings, 5, "ray").model_dump() == {
        "shards": 5, "runner": "ray", "workers": 3, "address": "ray://127.0.0.1:1"
    }  # fmt: skip
    assert scale_of(settings, None, "dask").address is None


def test_workers_elsewhere_use_their_own_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / "params.yaml").touch()
    monkeypatch.setenv(flows.shards.HOME, str(theirs))
    assert flows.shards.checkout(str(ours), socket.gethostname()) == ours
    assert flows.shards.checkout(str(ours), "another host") == theirs
    monkeypatch.delenv(flows.shards.HOME)
    assert flows.shards.checkout(str(ours), "another host") == ours
    (ours / "params.yaml").unlink()
    with pytest.raises(InputError, match=r"has no checkout in .*ours: set CLIPTUNE_HOME"):
        flows.shards.checkout(str(ours), "another host")
