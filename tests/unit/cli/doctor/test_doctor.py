"""`cliptune doctor`: every check names its fix, and none delays or hides the others."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from components.cli import app
from components.cli.doctor import CHECKS
from components.cli.doctor.check import CheckResult, Installation, examine, fail, ok, read_installation
from components.cli.doctor.servers import endpoint_checks
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tracking import make_client
from tests.support import scripted_llm
from tests.support.registry_project import write_version_files

REPO = Path(__file__).parents[4]
SECRET = "planted-secret"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine, and an empty folder with prefect.yaml."""
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prefect.yaml").write_text((REPO / "prefect.yaml").read_text("utf-8"), encoding="utf-8")


def _check(title: str, settings: Settings | None = None, **environment: str) -> CheckResult:
    installation = Installation(environment, Path(), settings, "params.yaml: key 'x': fix it")
    (line,) = examine(installation, {title: CHECKS[title]}, 120)
    return replace(line, check="")


def _changed(raw: dict[str, Any], **synthesize: Any) -> Settings:
    return Settings.model_validate(raw | {"synthesize": raw["synthesize"] | synthesize})


@contextmanager
def _server(answers: dict[str, Any], auth: str = "") -> Iterator[str]:
    """A server of JSON answers by path; with `auth`, only to those who send it."""
    with scripted_llm.scripted(scripted_llm.unpaid, answers, auth) as server:
        yield server.url.removesuffix("/v1")


def test_a_check_that_hangs_or_breaks_is_one_line_among_others(settings: Settings) -> None:
    released = threading.Event()

    def hangs(_installation: Installation) -> CheckResult:
        released.wait()
        return ok("after all others")

    def breaks(_installation: Installation) -> CheckResult:
        raise ValueError("why\nmore")

    def refuses(_installation: Installation) -> CheckResult:
        raise InputError("it is broken: fix it")

    checks = {"hang": hangs, "break": breaks, "refuse": refuses, "fine": lambda _installation: ok("fine")}
    hung, broken, refused, fine = examine(Installation({}, Path(), settings), checks, 2)
    released.set()
    assert (hung.status, broken.status, fine.status) == ("fail", "fail", "ok")
    assert "no answer within 2 s" in hung.detail
    assert broken.detail == "ValueError: why"
    assert replace(refused, check="") == fail("it is broken", "fix it")


def test_prefect_api_which_is_not_followed_where_it_redirects(settings: Settings) -> None:
    assert _check("Prefect API", settings).status == "not used"
    auth = f"Basic {base64.b64encode(b'admin:pass').decode()}"
    login, answers = {"PREFECT_API_AUTH_STRING": "admin:pass"}, {"/api/admin/version": version("prefect")}
    with _server(answers, auth) as url:
        assert _check("Prefect API", settings, PREFECT_API_URL=f"{url}/api", **login).status == "ok"
        refused = _check("Prefect API", settings, PREFECT_API_URL=f"{url}/api")
        wrong = _check("Prefect API", settings, PREFECT_API_URL=url, **login)
    absent = _check("Prefect API", settings, PREFECT_API_URL="http://127.0.0.1:9/api")
    for result, fix in ((refused, "PREFECT_API_AUTH_STRING"), (wrong, "end with /api"), (absent, "make stack")):
        assert (result.status, fix in result.fix) == ("fail", True)
    with _server({"/api/admin/version": "3.0.0"}) as url:
        assert _check("Prefect API", settings, PREFECT_API_URL=f"{url}/api").status == "warn"
    with scripted_llm.scripted(lambda *_: scripted_llm.said("")) as other:
        with scripted_llm.scripted(scripted_llm.redirect_to(other.url)) as server:
            assert _check("Prefect API", settings, PREFECT_API_URL=f"{server.url}/api").status == "fail"
        assert other.bodies == []


def test_a_deleted_experiment_fails_the_check_of_tracking(settings: Settings, track_in: Any) -> None:
    track_in(Path.cwd())
    client = make_client()
    number = client.create_experiment(settings.dataset.name)
    assert _check("tracking", settings).status == "ok"
    client.delete_experiment(number)
    result = _check("tracking", settings)
    assert (result.status, result.detail) == ("fail", f"MLflow's experiment '{settings.dataset.name}' is deleted")
    assert f"`mlflow experiments restore --experiment-id {number}`" in result.fix


def test_tracking_store_and_server_and_no_password_of_a_database_is_shown(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, raw_params: dict[str, Any]
) -> None:
    assert "will be made" in _check("tracking", settings).detail
    Path("broken.db").write_bytes(b"no database " * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///broken.db")
    assert _check("tracking", settings).status == "fail"
    auth = f"Basic {base64.b64encode(b'me:pass').decode()}"
    active = {"experiment": {"experiment_id": "1", "lifecycle_stage": "active"}}
    routes = {"/api/2.0/mlflow/experiments/search": {}, "/api/2.0/mlflow/experiments/get-by-name": active}
    with _server(routes, auth) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        assert _check("tracking", settings).status == "fail"
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pass")
        assert _check("tracking", settings) == ok(f"{url} answers")
    url = f"postgresql://me:{SECRET}@127.0.0.1:9/x"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    stored = _changed(raw_params, store=url)
    for result in (_check("tracking", settings), _check("generation store", stored)):
        assert result.status == "fail"
        assert "postgresql://***@127.0.0.1:9/x" in result.detail
        assert SECRET not in result.detail + result.fix


def test_champion_is_named_if_it_has_its_files(settings: Settings, tmp_path: Path) -> None:
    assert _check("registry", settings).status == "not used"
    client = make_client()
    client.create_registered_model("text-encoder")
    client.create_model_version("text-encoder", str(tmp_path), tags=write_version_files(tmp_path))
    client.set_registered_model_alias("text-encoder", "champion", "1")
    assert _check("registry", settings) == ok("text-encoder: champion is version 1")
    (tmp_path / "artifacts" / "metrics.json").unlink()
    result = _check("registry", settings)
    assert (result.status, "`cliptune promote` restores them" in result.fix) == ("fail", True)


_CHAT: dict[str, Any] = {"choices": [{"message": {"content": "Two dogs run."}}]}


@pytest.mark.parametrize(
    ("answers", "changes", "status", "text"),
    [
        ({"chat/completions": _CHAT}, {}, "ok", "serves phi"),
        ({"chat/completions": _CHAT}, {"api_key_env": "WRONG_KEY"}, "fail", "(HTTP 401"),
        ({"chat/completions": _CHAT}, {"api_key_env": "NONE"}, "fail", "(HTTP 401"),
        ({}, {}, "fail", "refuses every question to model 'phi' (HTTP 404"),
        ({"chat/completions": "It works!"}, {}, "fail", "does not answer as an OpenAI-compatible server"),
        ({}, {"urls": []}, "fail", "synthesize.llms.phi.urls is not set"),
        ({}, {"model": ""}, "fail", "synthesize.llms.phi.model is not set"),
        ({}, {"urls": ["http://127.0.0.1:9/v1"]}, "fail", "accepts no connection ("),
        ({"chat/completions": _CHAT}, {"engine": "local"}, "not used", "no stage uses a server"),
    ],
)  # fmt: skip
def test_endpoint_of_a_language_model(
    answers: dict[str, Any],
    changes: dict[str, Any],
    status: str,
    text: str,
    raw_params: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RIGHT", SECRET)
    monkeypatch.setenv("WRONG_KEY", "wrong")
    with _server({f"/v1/{path}": answer for path, answer in answers.items()}, f"Bearer {SECRET}") as url:
        server = {"engine": "server", "urls": [f"{url}/v1"], "model": "phi", "api_key_env": "RIGHT", **changes}
        tasks = {"paraphrase_1": raw_params["synthesize"]["tasks"]["paraphrase_1"]}
        settings = _changed(raw_params, llms={"phi": server}, default_llm="phi", tasks=tasks)
        result = _check("LLM endpoint", settings)
        assert (result.status, text in result.detail) == (status, True), result
        assert status != "fail" or "params.yaml" in result.fix or changes["api_key_env"] in result.fix
        assert SECRET not in result.detail + result.fix
        # Stages that would not run use no server.
        assert list(endpoint_checks(settings, ["prepare"])) == []


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        (scripted_llm.gpt_5, "ok", "serves fake"),
        (scripted_llm.unpaid, "fail", "has no credit"),
        (scripted_llm.endless, "fail", "the answer has more than 8 MB"),
    ],
)
def test_an_endpoint_of_today(
    script: scripted_llm.Script, status: str, text: str, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RIGHT", raising=False)
    with scripted_llm.scripted(script) as server:
        block = {"engine": "server", "urls": [server.url], "model": "fake", "api_key_env": "RIGHT", "seeds": True}
        tasks = {"paraphrase_1": raw_params["synthesize"]["tasks"]["paraphrase_1"]}
        result = _check("LLM endpoint", _changed(raw_params, llms={"fake": block}, default_llm="fake", tasks=tasks))
    assert (result.status, text in result.detail) == (status, True), result


def test_a_slow_endpoint(raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.cli.doctor.servers.QUESTION_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = {"engine": "server", "urls": [f"http://127.0.0.1:{silent.getsockname()[1]}/v1"], "model": "phi"}
        models = dict.fromkeys(raw_params["synthesize"]["llms"], server)
        result = _check("LLM endpoint", _changed(raw_params, llms=models))
    assert "has answered nothing for 0.2 seconds (time-out)" in result.detail
    assert "correct the URL in synthesize.llms." in result.fix


class _Gpus:
    """torch's modules `version` and `cuda` on a machine with two GPUs, or with the fault of a driver."""

    name, total_memory = "H200", 140 << 30

    def __init__(self, cuda: str | None = "13.0", fault: str = "") -> None:
        self.cuda, self._fault = cuda, fault

    def current_device(self) -> int:
        if self._fault:
            raise RuntimeError(self._fault)
        return 0

    def device_count(self) -> int:
        return 2

    def get_device_properties(self, _number: int) -> _Gpus:
        return self


@pytest.mark.parametrize(
    ("gpus", "settled", "status", "text"),
    [
        (None, {}, "not used", "no NVIDIA GPU"),
        (None, {"device": "cuda"}, "fail", "there is no nvidia-smi"),
        (_Gpus(None), {}, "fail", "torch is a build for processors"),
        (_Gpus(fault="driver is too old (found version 11040)\nmore"), {}, "fail", "too old (found version 11040))"),
        (_Gpus(), {}, "ok", "2 x H200, 143,360 MiB, torch's CUDA 13.0"),
        (_Gpus(), {"train": {"processes": 3}}, "fail", "train.processes is 3: lower it to the number of GPUs"),
    ],
    ids=["none", "wanted", "processors", "old driver", "fine", "too few"],
)
def test_gpus(
    gpus: _Gpus | None,
    settled: dict[str, Any],
    status: str,
    text: str,
    raw_params: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: gpus and "/usr/bin/nvidia-smi")
    if gpus is not None:
        monkeypatch.setattr("torch.version", gpus)
        monkeypatch.setattr("torch.cuda", gpus)
    for key, value in settled.items():
        raw_params[key] = raw_params[key] | value if isinstance(value, dict) else value
    result = _check("GPU and driver", Settings.model_validate(raw_params))
    assert (result.status, text in result.detail + result.fix) == (status, True), result


def test_broken_settings_fail_once_and_the_exit_code_is_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "params.yaml").write_text("dataset: {nam: x}")
    lines = {line.check: line.status for line in examine(read_installation(tmp_path), CHECKS, 120)}
    assert lines["params.yaml"] == "fail"
    assert lines["registry"] == lines["generation store"] == lines["LLM endpoint"] == "not used"
    for result, code in ((ok("fine"), 0), (fail("broken", "fix [it]"), 1)):
        monkeypatch.setattr("components.cli.doctor.check.examine", lambda *_, result=result: [result])
        as_json, table = (CliRunner().invoke(app, ["doctor", *options]) for options in (["--json"], []))
        assert as_json.exit_code == table.exit_code == code
        assert json.loads(as_json.stdout)[0]["status"] == result.status
        assert result.fix in table.stdout
