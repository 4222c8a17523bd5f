"""The flows of one method and of all: the right stages, each after what it needs, nothing twice, artifacts."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from prefect import get_client
from prefect.states import Cancelling

import flows.commands
import flows.stages
from components.core.settings import Settings, load_settings
from components.core.system.errors import InputError
from components.core.system.processes import CommandError
from components.core.system.stage_graph import read_graph
from components.core.tracking import make_client
from flows.commands import StoppedError, TimeLimitError
from flows.synthesize import synthesize_captions
from flows.train import chosen_methods, compare_methods, train_paraclip
from tests.flows.conftest import artifact, flow_runs_named, with_server
from tests.support.params import REPO, every_method
from tests.support.tracked_runs import find_runs
from tests.support.waiting import wait_until

CAPTIONS = {"synthesize@paraphrase_1", "synthesize@paraphrase_2", "validate@paraphrases"}
SHARED = {"prepare", "base", "embed", *CAPTIONS, "evaluate@base"}
ONE = SHARED | {"train@paraclip", "evaluate@paraclip"}
ALL = ONE | {"train@other", "evaluate@other"}


def _in_order(ran: list[str]) -> bool:
    needs = read_graph().needs
    return all(ran.index(need) < ran.index(stage) for stage in ran for need in needs.get(stage, ()) if need in ran)


def test_the_pipeline_has_these_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    assert set(read_graph().upstream(["evaluate@paraclip", "evaluate@base"])) == ONE | {"students", "test_set"}


@with_server
def test_captions_and_one_method_run_with_what_they_need_and_are_compared_once_all_have_results(project: Any) -> None:
    synthesize_captions(tasks=["paraphrase_2"])
    assert project.ran() == ["prepare", "synthesize@paraphrase_1", "synthesize@paraphrase_2"]
    with pytest.raises(InputError, match=r"no block synthesize\.tasks\.none: choose from change_unit, "):
        synthesize_captions(tasks=["none"])
    project.score("base", "paraclip")
    train_paraclip(method="paraclip")
    assert set(project.ran()) == ONE
    assert "other" not in artifact("results-table")
    project.score("other")
    train_paraclip(method="paraclip")
    ran = project.ran()
    assert (set(ran[:-2]), ran[-2:]) == (ONE, ["compare", "promote"])
    assert len(ran) == len(set(ran))
    assert _in_order(ran)
    assert "0.5000 [0.4000, 0.6000]" in artifact("results-table")
    assert "# m: refused" in artifact("promotion-decision")


@with_server
def test_methods_work_at_the_same_time_and_a_second_run_does_nothing(project: Any) -> None:
    # Each waits until the other is at work too.
    meet = "Path(f'{stage}.here').touch()\nwhile len(list(Path('.').glob('train@*.here'))) < 2: time.sleep(0.05)\n"
    # Threads that wait must not take a core from the other method's.
    meet += "Path('policy.txt').open('a').write(os.environ['OMP_WAIT_POLICY'] + ' ')"
    project.plan({"train@paraclip": meet, "train@other": meet})
    compare_methods(parallel=2)
    ran = project.ran()
    assert (set(ran[:-2]), ran[-2:], len(ran)) == (ALL, ["compare", "promote"], len(ALL) + 2)
    assert _in_order(ran)
    assert Path("policy.txt").read_text().split() == ["PASSIVE", "PASSIVE"]
    compare_methods()
    assert project.ran() == [*ran, "promote"]
    rows = json.loads(artifact("stages").partition("pipeline. ")[2])
    assert {row["result"] for row in rows} == {"up to date"}


@with_server
def test_a_method_that_fails_stops_no_other_and_the_next_run_goes_on_from_there(project: Any) -> None:
    project.plan({"train@paraclip": "sys.exit('error: data/pairs/train.parquet is missing')"})
    with pytest.raises(CommandError) as failure:
        compare_methods()
    message = str(failure.value)
    assert "stage train@paraclip failed with exit code 1" in message
    assert message.endswith("working on train@paraclip\nerror: data/pairs/train.parquet is missing")
    ran = project.ran()
    assert set(ran) == ALL - {"evaluate@paraclip"}
    assert ran.count("train@paraclip") == 1
    assert "not started: it needs a stage that failed" in artifact("stages")
    assert find_runs(load_settings().dataset.name, "flow") == []
    project.plan({})
    compare_methods()
    assert len(find_runs(load_settings().dataset.name, "flow")) == 1
    assert project.ran()[len(ran) :] == ["train@paraclip", "evaluate@paraclip", "compare", "promote"]


@with_server
def test_transient_faults_are_retried_and_locks_waited_for(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows.stages.run_stage, "retry_delay_seconds", [0])
    monkeypatch.setattr(flows.stages, "PAUSE", 0.0)
    once = "first = Path(f'{{stage}}.tried'); tried = first.exists(); first.touch(); tried or sys.exit({!r})"
    killed = "ERROR: failed to reproduce 'base': failed to run: python, exited with -9"
    busy = "ERROR: 'models/base' is busy, it is being blocked by:\n(PID 7): dvc"
    project.plan({"base": once.format(killed), "embed": once.format(busy)})
    project.score("other")
    train_paraclip(method="paraclip")
    ran = project.ran()
    assert (ran.count("base"), ran.count("embed")) == (2, 2)
    assert set(ran) == ONE | {"compare", "promote"}


@contextmanager
def _ended_from_outside(project: Any, end: Callable[[], None]) -> Iterator[None]:
    """Ends a flow whose first stage sleeps, while the block runs it; no process of the stage remains."""
    project.plan({"prepare": "Path('pid.txt').write_text(str(os.getpid())); time.sleep(120)"})
    file = project.folder / "pid.txt"

    def wait_and_end() -> None:
        wait_until(lambda: file.exists() and file.read_text(), 120)
        end()

    thread = threading.Thread(target=wait_and_end)
    thread.start()
    yield
    thread.join()
    wait_until(lambda: not psutil.pid_exists(int(file.read_text())), 120)


@with_server
def test_a_cancelled_flow_ends_as_cancelled(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Prefect's runner cancels: it announces its intent, and sends SIGTERM."""
    from prefect._internal import control_listener
    from prefect.exceptions import TerminationSignal

    def cancel() -> None:
        monkeypatch.setattr(control_listener, "get_intent", lambda: "cancel")
        monkeypatch.setattr("prefect.flow_engine.get_intent", lambda: "cancel")
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    try:
        with _ended_from_outside(project, cancel), pytest.raises(TerminationSignal):
            train_paraclip.with_options(flow_run_name="cancelled")(method="paraclip")
    finally:
        signal.signal(signal.SIGTERM, before)
    with get_client(sync_client=True) as client:
        (run,) = client.read_flow_runs(flow_run_filter=flow_runs_named("cancelled"))
    assert run.state is not None
    assert run.state.name == "Cancelled"
    client = make_client()
    experiment = client.get_experiment_by_name(load_settings().dataset.name)
    assert [found.info.status for found in client.search_runs([experiment.experiment_id])] == ["KILLED"]


@with_server
def test_a_flow_that_the_server_ends_leaves_no_process(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows.commands, "_POLLS_PER_REQUEST", 1)

    def end() -> None:
        with get_client(sync_client=True) as client:
            (run,) = client.read_flow_runs(flow_run_filter=flow_runs_named("ended by the server"))
            client.set_flow_run_state(run.id, Cancelling())

    message = "stage prepare stopped with its flow"
    with _ended_from_outside(project, end), pytest.raises(StoppedError, match=message):
        train_paraclip.with_options(flow_run_name="ended by the server")(method="paraclip")


@with_server
def test_a_stage_that_takes_too_long_is_ended(project: Any) -> None:
    project.plan({"prepare": "time.sleep(300)"})
    with pytest.raises(TimeLimitError, match=r"stage prepare took longer than its 0\.0003 hours and was ended"):
        train_paraclip(method="paraclip", stage_hours=0.0003)
    assert project.ran() == ["prepare"]


def test_only_faults_from_outside_are_retried_and_methods_without_a_score_named(settings: Settings) -> None:
    assert flows.stages.can_pass("working\nERROR: failed to run: x, exited with -9")
    assert flows.stages.can_pass("requests.exceptions.ConnectionError: no route")
    assert not flows.stages.can_pass("ConnectionError\nerror: the key is wrong\nERROR: failed to run, exited with 1")
    assert not flows.stages.can_pass("Traceback\nValueError: x\nERROR: failed to run: x, exited with 1")
    assert chosen_methods(settings, None) == ["paraclip"]
    assert chosen_methods(settings, ["paraclip", "paraclip"]) == ["paraclip"]
    with pytest.raises(InputError, match=r"params\.yaml has no block methods\.nothing: choose from paraclip,"):
        chosen_methods(settings, ["nothing"])
    with pytest.raises(InputError, match=r"encoders does not list joint.*cliptune profile apply methods"):
        chosen_methods(settings, ["joint"])
    bare = settings.model_copy(update={"compare_encoders": ("base",)})
    with pytest.raises(InputError, match="encoders lists no encoder but base"):
        chosen_methods(bare, None)


def test_every_flow_has_its_deployments_and_a_known_method() -> None:
    from prefect.utilities.importtools import import_object

    known = every_method()["methods"]
    deployments = yaml.safe_load((REPO / "prefect.yaml").read_text())["deployments"]
    places: dict[str, list[str]] = {}
    for entry in deployments:
        module, _, name = entry["entrypoint"].replace(".py", "").replace("/", ".").replace(":", ".").rpartition(".")
        flow = import_object(f"{module}.{name}")
        places.setdefault(flow.name, []).append(entry["name"])
        assert entry["work_pool"]["name"] == entry["name"]
        if flow.name.startswith("train-"):
            assert entry["parameters"]["method"] in known
    methods = ("paraclip", "pc-clip", "semclip", "lm-text-tower", "joint")
    wanted = {*(f"train-{name}" for name in methods), "compare-methods", "synthesize-captions", "promote", "sweep"}
    assert places == {name: ["local", "gpu"] for name in wanted}
    on = {entry["name"]: entry["schedules"][0].get("active", True) for entry in deployments if "schedules" in entry}
    assert on == {"local": True, "gpu": False}
