"""The engine `vllm` and its worker processes, with a stand-in for vLLM in an environment of its own."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from pydantic import ValidationError

from components.captions.engines.vllm import Options, VllmEngine, make
from components.captions.prompts.parsing import first_line
from components.captions.request import COMPLETION, PICTURE, Picture, Reply, Request, Sampling
from components.core.errors import InputError

REPO = Path(__file__).parents[4]
SAMPLING = Sampling(0.7, 0.9, 30)


def _request(text: str, role: str = "user", pictures: tuple[Picture, ...] = ()) -> Request:
    return Request("paraphrase_1", ((role, text),), "m@1", SAMPLING, 0, pictures)


def _requests(count: int) -> list[Request]:
    return [_request(f"question {number}") for number in range(count)]


def _answers(replies: list[Reply]) -> list[dict[str, Any]]:
    return [json.loads(reply.answer or "null") for reply in replies]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment whose vLLM is the stand-in."""
    script = tmp_path / "python"
    stand_in = Path(__file__).with_name("stand_in")
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{stand_in}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def _engine(python: Path, model: Path, **options: Any) -> VllmEngine:
    return make(Options.model_validate({"python": python, "model": str(model), "block": 4} | options))


def _processes(model: Path) -> list[int]:
    return [int(pid) for pid in (model / "pids").read_text().split()]


def _running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _wait_until_gone(pids: list[int]) -> None:
    while any(_running(pid) for pid in pids):
        time.sleep(0.05)


def test_every_request_has_its_reply_and_workers_share_the_blocks(python: Path, model: Path) -> None:
    requests = _requests(30)
    batches = list(_engine(python, model, processes=2).answer(iter(requests)))
    replies = [reply for batch in batches for reply in batch]
    assert sorted(len(batch) for batch in batches) == [2, *[4] * 7]
    assert {reply.request for reply in replies} == set(requests)
    assert len(replies) == 30
    shown = _answers(replies)
    assert all(answer["asked"] == reply.request.messages for answer, reply in zip(shown, replies, strict=True)), (
        "the replies stand beside their own requests"
    )
    assert len({answer["pid"] for answer in shown}) == 2
    assert len({answer["arguments"]["seed"] for answer in shown}) == 2
    _wait_until_gone(_processes(model))


def test_nothing_is_started_for_nothing(model: Path, tmp_path: Path) -> None:
    assert list(_engine(tmp_path / "nowhere", model).answer(iter([]))) == []


def test_requests_are_taken_as_the_workers_get_to_them(python: Path, model: Path) -> None:
    taken: list[Request] = []

    def lazily() -> Iterator[Request]:
        for request in _requests(60):
            taken.append(request)
            yield request

    done = 0
    for replies in _engine(python, model).answer(lazily()):
        assert len(taken) <= done + 2 * 4
        done += len(replies)
    assert done == 60


def test_chats_completions_and_pictures_go_to_vllm_as_it_takes_them(python: Path, model: Path) -> None:
    picture = Picture(b"\x89PNG", "image/png")
    requests = [
        _request("go on", COMPLETION),
        _request(f"what is{PICTURE}?", pictures=(picture,)),
        _request("plain"),
    ]
    options = {"chat_template_kwargs": {"enable_thinking": False}, "dtype": "float32", "max_model_len": 512}
    [replies] = _engine(python, model, **options, arguments={"swap_space": 1}).answer(requests)
    completion, shown, plain = _answers(replies)
    assert (completion["method"], completion["asked"]) == ("generate", "go on")
    url = {"url": "data:image/png;base64,iVBORw=="}
    parts = [
        {"type": "text", "text": "what is"},
        {"type": "image_url", "image_url": url},
        {"type": "text", "text": "?"},
    ]
    assert (shown["method"], shown["asked"]) == ("chat", [{"role": "user", "content": parts}])
    assert plain["asked"] == [{"role": "user", "content": "plain"}]
    assert plain["options"] == {"chat_template_kwargs": {"enable_thinking": False}}
    assert plain["sampling"] == {"temperature": 0.7, "top_p": 0.9, "max_tokens": 30, "seed": None}
    arguments = plain["arguments"]
    assert {name: arguments[name] for name in ("model", "dtype", "max_model_len", "swap_space", "revision")} == {
        "model": str(model),
        "dtype": "float32",
        "max_model_len": 512,
        "swap_space": 1,
        "revision": None,
    }
    assert arguments["enforce_eager"]


def test_each_worker_sees_its_own_gpus_and_each_row_has_its_own_seed(
    python: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 5)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,5,6,7")
    engine = _engine(python, model, arguments={"tensor_parallel_size": 2})
    shown = _answers([reply for replies in engine.answer(_requests(8)) for reply in replies])
    assert {answer["devices"] for answer in shown} == {"2,3", "5,6"}
    assert len({answer["sampling"]["seed"] for answer in shown}) == 8
    assert "enforce_eager" not in shown[0]["arguments"]
    again = _answers([reply for replies in engine.answer(_requests(8)) for reply in replies])
    seeds = [{str(answer["asked"]): answer["sampling"]["seed"] for answer in run} for run in (shown, again)]
    assert seeds[0] == seeds[1]
    with pytest.raises(InputError, match=r"needs 6 GPUs and this process sees 5: correct .*`processes`"):
        list(_engine(python, model, processes=3, arguments={"tensor_parallel_size": 2}).answer(_requests(1)))


def test_workers_on_a_cpu_share_its_cores(python: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(9)))
    [replies] = _engine(python, model, processes=2).answer(_requests(1))
    assert _answers(replies)[0]["threads"] == "4"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    [replies] = _engine(python, model, processes=2).answer(_requests(1))
    assert _answers(replies)[0]["threads"] == "3"


def test_a_refused_row_fails_alone(python: Path, model: Path) -> None:
    requests = [*_requests(6), _request("refuse each"), _request("refuse each", COMPLETION), *_requests(2)]
    replies = [reply for batch in _engine(python, model, block=10).answer(requests) for reply in batch]
    failures = {reply.request.chat[0]: reply.failure for reply in replies if reply.answer is None}
    assert set(failures) == {("user", "refuse each"), (COMPLETION, "refuse each")}
    assert all(failure is not None and failure.startswith("vLLM: this is too long") for failure in failures.values())


def test_a_model_that_refuses_everything_stops_the_run(python: Path, model: Path) -> None:
    requests = [_request(f"refuse {'x' * number}") for number in range(4)]
    with pytest.raises(InputError, match=r"can answer nothing \(vLLM: nobody may ask this\): correct the model's"):
        list(_engine(python, model).answer(requests))


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("question", {"broken": True}, r"ValueError: these settings do not go together"),
        ("die", {}, r"a worker died \(exit code 7 after: noise of a child\)"),
        ("dead engine", {}, r"VLLMServerError: the engine is dead"),
    ],
)
def test_a_dead_worker_is_told_in_one_line_and_takes_the_others_with_it(
    text: str, arguments: dict[str, Any], reason: str, python: Path, model: Path
) -> None:
    requests = [*_requests(4), _request(text), *_requests(20)]
    with pytest.raises(InputError, match=reason) as fault:
        list(_engine(python, model, processes=2, arguments=arguments).answer(requests))
    assert "\n" not in str(fault.value)
    if not arguments:
        _wait_until_gone(_processes(model))


def test_a_worker_ended_by_the_system_is_named_so(python: Path, model: Path) -> None:
    replies = _engine(python, model).answer([*_requests(4), *(_request(f"wait {number}") for number in range(4))])
    next(replies)
    os.kill(_processes(model)[0], signal.SIGKILL)
    with pytest.raises(InputError, match="SIGKILL, which the system sends when memory is short"):
        next(replies)


def test_workers_end_when_nobody_wants_their_replies(python: Path, model: Path) -> None:
    replies = _engine(python, model).answer([*_requests(4), *(_request(f"wait {number}") for number in range(4))])
    next(replies)
    pids = _processes(model)
    assert all(_running(pid) for pid in pids)
    replies.close()  # type: ignore[attr-defined]
    _wait_until_gone(pids)


@pytest.mark.slow
def test_workers_and_their_children_end_when_the_parent_is_killed(python: Path, model: Path) -> None:
    code = (
        "from components.captions.engines.vllm import *\n"
        f"options = Options(python={str(python)!r}, model={str(model)!r}, block=1, processes=2)\n"
        "from components.captions.request import *\n"
        "asked = [Request('t', (('user', f'wait {n}'),), 'm', Sampling(0, 1, 9), 0) for n in range(9)]\n"
        "list(make(options).answer(asked))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": ""}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment)
    while not (model / "pids").exists() or len(_processes(model)) < 4:
        assert parent.poll() is None, "the parent ended before it could be killed"
        time.sleep(0.05)
    pids = _processes(model)
    parent.kill()
    parent.wait()
    _wait_until_gone(pids)


def test_a_missing_environment_names_the_command_that_makes_it(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no environment \(.*missing\): run `make llm-server`"):
        list(_engine(tmp_path / "nowhere", model).answer(_requests(1)))


def test_the_model_is_known_without_the_environment(model: Path, tmp_path: Path) -> None:
    plain = _engine(tmp_path / "nowhere", model).model
    told = _engine(tmp_path / "nowhere", model, chat_template_kwargs={"enable_thinking": False}).model
    assert plain.startswith("tiny@")
    assert told.startswith(f"{plain}+")


def test_an_argument_is_not_given_twice() -> None:
    with pytest.raises(ValidationError, match="dtype, model belongs beside `arguments`"):
        Options.model_validate({"model": "m", "arguments": {"dtype": "auto", "model": "other", "seed": 1}})


def test_logs_are_kept_where_asked(python: Path, model: Path, tmp_path: Path) -> None:
    list(_engine(python, model, log=tmp_path / "logs").answer(_requests(1)))
    assert "noise of a child" in (tmp_path / "logs" / "worker-0.log").read_text()


def test_vllm_is_imported_by_its_worker_alone() -> None:
    files = [path for folder in ("components", "flows", "infra") for path in (REPO / folder).rglob("*.py")]
    importers = {path.relative_to(REPO).as_posix() for path in files if "vllm" in _imported(path)}
    assert importers == {"components/captions/vllm/worker.py"}
    worker = _imported(REPO / "components/captions/vllm/worker.py")
    assert worker - {"vllm"} <= sys.stdlib_module_names, "it runs in an environment that has nothing else"


def _imported(path: Path) -> set[str]:
    """Top-level packages that a file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


def test_answers_without_their_end_are_asked_once_more_with_more_tokens(python: Path, model: Path) -> None:
    asked = [replace(_request(f"{kind} {number}"), parse=first_line)
             for number, kind in enumerate(["short", "long", "nothing", "long"] * 5)]  # fmt: skip
    endless = replace(_request("long", pictures=()), sampling=replace(SAMPLING, max_tokens=2), parse=first_line)
    found = {reply.request.key: reply for batch in _engine(python, model).answer([*asked, endless]) for reply in batch}
    assert found.keys() == {request.key for request in [*asked, endless]}
    for request in asked:
        reply, text = found[request.key], request.chat[0][1]
        if "nothing" in text:
            assert (reply.answer, reply.failure) == (None, "the model said nothing")
        else:
            told = json.loads(reply.answer or "")
            assert (told["asked"][0]["content"], reply.request.sampling) == (text, SAMPLING)
            assert told["sampling"]["max_tokens"] == (120 if "long" in text else 30)
    assert found[endless.key].failure == "the answer was cut at 8 tokens: raise the task's max_tokens"


def test_a_cut_answer_that_says_enough_stays(python: Path, model: Path) -> None:
    judged = replace(_request("long"), parse=lambda answer: "yes" if "long" in answer or answer else None)
    [[reply]] = _engine(python, model).answer([judged])
    assert reply.answer is not None
