"""The synthesis flow: shards first, then their task's table; passing faults are retried, and no process remains."""

from __future__ import annotations

import json
import os
import signal
import threading
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
from tests.flows.conftest import Project, flow_runs_named, with_server
from tests.support.waiting import wait_until

TASKS = ("paraphrase_1", "paraphrase_2")
SHARDS = ("paraphrase_1 0/2", "paraphrase_1 1/2")


@pytest.fixture
def checkout(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose stage `synthesize` is a stand-in too."""
    project.fake_shards(monkeypatch, "components/captions/synthesize.py")
    columns: dict[str, list[Any]] = {name: [None] * 3 for name in GENERATIONS.schema.names}
    columns |= {"id": ["a", "b", "c"], "sample": [0] * 3, "source": ["s"] * 3, "key": ["k"] * 3}
    columns |= {"accepted": [True, False, True], "text": ["t", None, "t"], "reason": [None, "unparsable", None]}
    for task in TASKS:
        GENERATIONS.write(project.folder / "data" / "captions" / "paraphrases" / f"{task}.parquet", columns)
    return project


@with_server
def test_shards_of_an_outdated_task_run_after_its_needs_and_before_its_table(checkout: Project) -> None:
    from prefect.artifacts import Artifact

    synthesize_captions(tasks=["paraphrase_2"], shards=3)
    ran = checkout.ran()
    assert ran[0] == "prepare"
    assert sorted(ran[1:4]) == [f"paraphrase_1 {number}/3" for number in range(3)]
    assert ran[4] == "synthesize@paraphrase_1"
    assert sorted(ran[5:8]) == [f"paraphrase_2 {number}/3" for number in range(3)]
    assert ran[8:] == ["synthesize@paraphrase_2"]
    table = Artifact.get("captions-table")
    assert table is not None
    counts = {"shards": 3, "rows": 3, "replayed": 6, "generated": 9, "failed": 3, "rejected": 1}
    assert json.loads(str(table.data)) == [{"task": task, **counts} for task in TASKS]
    (checkout.folder / "done" / "synthesize@paraphrase_2").unlink()
    synthesize_captions(tasks=["paraphrase_2"])
    assert sorted(checkout.ran()[9:11]) == ["paraphrase_2 0/2", "paraphrase_2 1/2"]
    assert checkout.ran()[11:] == ["synthesize@paraphrase_2"]


@with_server
def test_a_fault_of_the_user_fails_the_flow_at_once_and_other_shards_end(checkout: Project) -> None:
    fault = "print('here'); sys.exit('error: data/pairs/train.parquet is missing')"
    checkout.plan({SHARDS[0]: fault, SHARDS[1]: "time.sleep(1); Path('ended.txt').touch()"})
    with pytest.raises(CommandError) as failure:
        synthesize_captions(tasks=["paraphrase_1"])
    message = str(failure.value)
    assert "1 of 2 shards of paraphrase_1 failed" in message
    assert "shard 0/2 of paraphrase_1 failed with exit code 1" in message
    assert message.endswith("here\nerror: data/pairs/train.parquet is missing")
    assert (checkout.folder / "ended.txt").exists()
    assert sorted(checkout.ran()) == [*SHARDS, "prepare"]


@with_server
def test_a_shard_that_the_system_killed_gets_another_try(checkout: Project) -> None:
    checkout.plan({SHARDS[1]: "Path('once').exists() or (Path('once').touch(), os.kill(os.getpid(), 9))"})
    synthesize_captions(tasks=["paraphrase_1"])
    assert [checkout.ran().count(shard) for shard in SHARDS] == [1, 2]
    assert checkout.ran()[-1] == "synthesize@paraphrase_1"


@with_server
@pytest.mark.parametrize("by", ["an interrupt", "the server's state"])
def test_an_ended_flow_leaves_no_process(checkout: Project, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    from prefect import get_client
    from prefect.states import Cancelling

    monkeypatch.setattr(flows.commands, "_POLLS_PER_REQUEST", 1)
    checkout.plan({SHARDS[1]: "Path('pid.txt').write_text(str(os.getpid())); time.sleep(120)"})
    file = checkout.folder / "pid.txt"

    def end() -> None:
        wait_until(lambda: file.exists() and file.read_text(), 120)
        if by == "an interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            return
        with get_client(sync_client=True) as client:
            (run,) = client.read_flow_runs(flow_run_filter=flow_runs_named(f"ended by {by}"))
            client.set_flow_run_state(run.id, Cancelling())

    thread = threading.Thread(target=end)
    thread.start()
    # Whether the other shard has ended by then depends on the machine.
    message = None if by == "an interrupt" else r"shard ./2 of paraphrase_1 stopped with its flow"
    with pytest.raises(KeyboardInterrupt if message is None else CommandError, match=message):
        synthesize_captions.with_options(flow_run_name=f"ended by {by}")(tasks=["paraphrase_1"])
    thread.join()
    pid = int(file.read_text())
    wait_until(lambda: not psutil.pid_exists(pid), 120)
    assert checkout.ran().count(SHARDS[1]) == 1


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
