"""The engine `vllm` and its server process, with a stand-in for vLLM in an environment of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from pydantic import ValidationError

from components.captions.generating.engines.vllm import VllmEngine, VllmOptions
from components.captions.prompting.request import COMPLETION, Reply, Request, Sampling
from components.core.system.errors import InputError

REPO = Path(__file__).parents[5]
SAMPLING = Sampling(0.7, 0.9, 30)


def _request(text: str, role: str = "user") -> Request:
    return Request("paraphrase_1", ((role, text),), "m@1", SAMPLING, 0)


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
    return VllmEngine(VllmOptions.model_validate({"python": python, "model": str(model), "concurrency": 4} | options))


def _replies(engine: VllmEngine, requests: list[Request]) -> dict[str, Reply]:
    return {reply.request.key: reply for batch in engine.answer(requests) for reply in batch}


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


def test_requests_have_replies(python: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    requests = _requests(30)
    engine = _engine(python, model, log=tmp_path / "logs")
    replies = [reply for batch in engine.answer(iter(requests)) for reply in batch]
    assert len(replies) == 30
    assert {reply.request for reply in replies} == set(requests)
    assert [answer["asked"] for answer in _answers(replies)] == [reply.request.messages for reply in replies]
    assert not any(_running(pid) for pid in _processes(model))
    assert "noise of a child" in (tmp_path / "logs" / "vllm.log").read_text()


def test_the_task_and_the_settings_reach_vllm(python: Path, model: Path) -> None:
    options = {"chat_template_kwargs": {"enable_thinking": False}, "dtype": "float32", "max_model_len": 512}
    more = {"swap_space": 1, "enable-prefix-caching": False, "enable_chunked_prefill": True, "sizes": [1, 2]}
    engine = _engine(python, model, **options, arguments=more | {"a": {"b": 1}})
    requests = [_request("go on", COMPLETION), _request("plain")]
    replies = _replies(engine, requests)
    completion, plain = (_answers([replies[request.key]])[0] for request in requests)
    assert (completion["asked"], plain["asked"]) == ("go on", [{"role": "user", "content": "plain"}])
    assert plain["body"] == {"model": str(model), "temperature": 0.7, "top_p": 0.9, "max_tokens": 30}
    flags = " ".join(plain["flags"])
    assert f"--model={model} " in flags
    assert '--dtype=float32 --max-model-len=512 --default-chat-template-kwargs={"enable_thinking": false} ' in flags
    assert '--swap-space=1 --no-enable-prefix-caching --enable-chunked-prefill --sizes 1 2 --a={"b": 1} ' in flags
    assert "--generation-config=vllm" in flags, "nothing but the task's sampling decides how tokens are drawn"
    assert "--enforce-eager" in flags
    assert "--revision" not in flags
    assert "key" not in flags, "every user of the machine sees command lines"


def test_gpus_share_the_work_and_rows_have_seeds(python: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 5)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,5,6,7")
    engine = _engine(python, model, arguments={"tensor_parallel_size": 2})
    shown = _answers(list(_replies(engine, _requests(8)).values()))
    assert {answer["CUDA_VISIBLE_DEVICES"] for answer in shown} == {"2,3,5,6,7"}
    assert {"--data-parallel-size=2", "--tensor-parallel-size=2"} <= set(shown[0]["flags"])
    assert len({answer["body"]["seed"] for answer in shown}) == 8
    assert "--enforce-eager" not in shown[0]["flags"]
    again = _answers(list(_replies(engine, _requests(8)).values()))
    seeds = [{str(answer["asked"]): answer["body"]["seed"] for answer in run} for run in (shown, again)]
    assert seeds[0] == seeds[1]
    given = _engine(python, model, arguments={"data_parallel_size": 3})
    assert "--data-parallel-size=3" in _answers(list(_replies(given, _requests(1)).values()))[0]["flags"]


def test_a_cpu_has_the_threads_of_this_process(python: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(9)))
    for given, threads in ((None, "9"), ("3", "3")):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if given is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", given)
        [replies] = _engine(python, model).answer(_requests(1))
        assert _answers(replies)[0]["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("question", {"arguments": {"broken": True}}, r"ValueError: these settings do not go together"),
        ("question", {"arguments": {"invalid": True}}, r"vLLM died with exit code 1 \(Value error, 9 is too long\)"),
        (
            "question",
            {"arguments": {"slow": True}, "wait_s": 2},
            r"not loaded after 2 seconds: give .* longer `wait_s`",
        ),
        ("die", {}, r"vLLM died with exit code 7 \(noise of a child\)"),
        ("dead engine", {}, r"VLLMServerError: the engine is dead"),
    ],
)
def test_a_dead_vllm_is_one_line(text: str, options: dict[str, Any], reason: str, python: Path, model: Path) -> None:
    requests = [*_requests(4), _request(text), *_requests(20)]
    with pytest.raises(InputError, match=reason) as fault:
        list(_engine(python, model, **options).answer(requests))
    assert "\n" not in str(fault.value)
    assert not any(_running(pid) for pid in _processes(model))


@pytest.mark.parametrize("by", ["the system", "the caller"])
def test_vllm_ends_when_it_is_killed_or_no_more_replies_are_needed(python: Path, model: Path, by: str) -> None:
    replies: Any = _engine(python, model).answer([*_requests(4), *(_request(f"wait {number}") for number in range(4))])
    next(replies)
    pids = _processes(model)
    assert all(_running(pid) for pid in pids)
    if by == "the system":
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(InputError, match="vLLM died with exit code 137"):
            list(replies)
    replies.close()
    assert not any(_running(pid) for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "arguments"), [(signal.SIGKILL, {}), (signal.SIGTERM, {"slow": True})])
def test_vllm_ends_with_its_parent(how: signal.Signals, arguments: dict[str, Any], python: Path, model: Path) -> None:
    code = (
        "from components.captions.generating.engines.vllm import *\n"
        f"engine = VllmEngine(VllmOptions(python={str(python)!r}, model={str(model)!r}, arguments={arguments!r}))\n"
        "from components.captions.prompting.request import *\n"
        "asked = [Request('t', (('user', f'wait {n}'),), 'm', Sampling(0, 1, 9), 0) for n in range(9)]\n"
        "list(engine.answer(asked))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": ""}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    while not (model / "pids").exists() or len(_processes(model)) < 2:
        assert parent.poll() is None, "the parent ended before it could be killed"
        time.sleep(0.05)
    time.sleep(1)
    pids = _processes(model)
    assert all(_running(pid) for pid in pids)
    parent.send_signal(how)
    parent.wait()
    _wait_until_gone(pids)


def test_names_have_options_and_wrong_settings_are_refused(model: Path, tmp_path: Path) -> None:
    def name(**options: Any) -> str:
        # The names of models need no environment.
        return _engine(Path("nowhere"), model, **options).model

    assert name().startswith("tiny@")
    placed: dict[str, Any] = {"tensor-parallel-size": 2, "gpu_memory_utilization": 0.5}
    assert name(dtype="auto", max_model_len=512, concurrency=9, arguments=placed) == name()
    arguments: list[dict[str, Any]] = [{"quantization": "fp8"}, {"a_flag_of_tomorrow": True}]
    other = [name(dtype="float16"), name(chat_template_kwargs={"enable_thinking": False})]
    other += [name(arguments=one) for one in arguments]
    assert all(one.startswith(f"{name()}+") for one in other)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"dtype": "auto", "max-model-len": 9, "seed": 1}, "dtype, max_model_len belongs next to `arguments`"),
        ({"api-key": "k", "port": 1}, "api_key, port is set by the engine: remove it"),
    ]
    for arguments, reason in wrong:
        with pytest.raises(ValidationError, match=reason):
            VllmOptions.model_validate({"model": "m", "arguments": arguments})
    engine = _engine(tmp_path / "nowhere", model)
    assert list(engine.answer(iter([]))) == []
    with pytest.raises(InputError, match=r"no environment \(.*missing\): run `make llm-server`"):
        list(engine.answer(_requests(1)))
