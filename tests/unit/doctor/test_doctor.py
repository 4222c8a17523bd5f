"""`cliptune doctor`: every part is looked at, says how to fix it, and none can hold up or hide the others."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from components.cli import app
from components.core.errors import InputError
from components.core.settings import Settings
from components.doctor.check import Check, Finding, Surroundings, fail, ok
from components.doctor.checks import all_checks
from components.doctor.checks.gpu import driver_cuda, torch_cuda
from components.doctor.examine import examine, surroundings

REPO = Path(__file__).parents[3]
SECRET = "planted-secret"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this machine, and a folder of one's own."""
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prefect.yaml").write_text((REPO / "prefect.yaml").read_text("utf-8"), encoding="utf-8")


def _around(settings: Settings | None, **environment: str) -> Surroundings:
    return Surroundings(environment, Path(), settings, "params.yaml: key 'x': fix it")


def _find(name: str, settings: Settings | None = None, **environment: str) -> Finding:
    check = all_checks()[name]
    line = examine(_around(settings, **environment), 120, {name: check})[0]
    return Finding(line.status, line.detail, line.fix)  # type: ignore[arg-type]


def _changed(raw: dict[str, Any], **blocks: Any) -> Settings:
    for name, values in blocks.items():
        raw[name] |= values
    return Settings.model_validate(raw)


@contextmanager
def _server(answers: dict[str, Any], auth: str = "", date: str = "") -> Iterator[str]:
    """A server of JSON answers by path; with `auth`, only to those who send it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = 401 if auth and self.headers.get("Authorization") != auth else 200
            path = self.path.partition("?")[0]
            status = status if status == 401 or path in answers else 404
            body = json.dumps(answers.get(path)).encode()
            self.send_response_only(status)
            self.send_header("Date", date or self.date_time_string())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _prefect(workers: list[str], theirs: str = "") -> dict[str, Any]:
    online = [{"status": status} for status in workers]
    return {
        "/api/health": True,
        "/api/admin/version": theirs or version("prefect"),
        "/api/work_pools/filter": [{"name": "local"}, {"name": "gpu"}],
        "/api/work_pools/local/workers/filter": online,
        "/api/work_pools/gpu/workers/filter": [],
    }


def test_checks_have_titles_and_places_of_their_own() -> None:
    checks = list(all_checks().values())
    assert len({check.title for check in checks}) == len({check.place for check in checks}) == len(checks) == 14


def test_what_hangs_or_breaks_is_one_line_among_others(settings: Settings) -> None:
    told = threading.Event()

    def hangs(_around: Surroundings) -> Finding:
        told.wait()
        return ok("after all others were told")

    def breaks(_around: Surroundings) -> Finding:
        raise ValueError("why\nmore")

    def says(_around: Surroundings) -> Finding:
        raise InputError("it is broken: fix it")

    functions = (hangs, breaks, says, lambda _around: ok("fine"))
    checks = {str(number): Check(str(number), number, function) for number, function in enumerate(functions)}
    lines = examine(_around(settings), 2, checks)
    told.set()
    assert [line.status for line in lines] == ["fail", "fail", "fail", "ok"]
    assert "no answer within 2 s" in lines[0].detail
    assert lines[1].detail == "ValueError: why"
    assert (lines[2].detail, lines[2].fix) == ("it is broken", "fix it")


def test_prefect_is_not_used_without_an_address(settings: Settings) -> None:
    assert _find("prefect_server", settings).status == _find("workers", settings).status == "not used"


def test_prefect_answers_those_with_the_auth_string(settings: Settings) -> None:
    auth = f"Basic {base64.b64encode(b'admin:pass').decode()}"
    with _server(_prefect([]), auth) as url:
        refused = _find("prefect_server", settings, PREFECT_API_URL=f"{url}/api")
        assert (refused.status, "PREFECT_API_AUTH_STRING" in refused.fix) == ("fail", True)
        found = _find("prefect_server", settings, PREFECT_API_URL=f"{url}/api", PREFECT_API_AUTH_STRING="admin:pass")
        assert found.status == "ok"
        wrong = _find("prefect_server", settings, PREFECT_API_URL=url, PREFECT_API_AUTH_STRING="admin:pass")
        assert (wrong.status, "end with /api" in wrong.fix) == ("fail", True)


def test_another_version_of_prefect_is_a_warning(settings: Settings) -> None:
    with _server(_prefect([], "3.0.0")) as url:
        assert _find("prefect_server", settings, PREFECT_API_URL=f"{url}/api").status == "warn"


@pytest.mark.parametrize(("workers", "status"), [(["ONLINE", "OFFLINE"], "warn"), (["OFFLINE"], "fail"), ([], "fail")])
def test_workers_are_counted_where_they_are_online(settings: Settings, workers: list[str], status: str) -> None:
    with _server(_prefect(workers)) as url:
        found = _find("workers", settings, PREFECT_API_URL=f"{url}/api")
    assert found.status == status
    assert f"prefect worker start --pool {'gpu' if status == 'warn' else 'local'}" in found.fix


def test_missing_pool_is_named(settings: Settings) -> None:
    with _server(_prefect([]) | {"/api/work_pools/filter": [{"name": "local"}]}) as url:
        found = _find("workers", settings, PREFECT_API_URL=f"{url}/api")
    assert (found.status, found.detail) == ("fail", "no work pool gpu")


def test_nobody_at_the_address(settings: Settings) -> None:
    found = _find("prefect_server", settings, PREFECT_API_URL="http://127.0.0.1:9/api")
    assert (found.status, "make stack" in found.fix) == ("fail", True)


def test_tracking(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "will be made" in _find("tracking", settings).detail
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "mlruns")
    assert "sqlite:///mlruns/mlflow.db" in _find("tracking", settings).fix
    Path("broken.db").write_bytes(b"no database " * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///broken.db")
    assert _find("tracking", settings).status == "fail"
    auth = f"Basic {base64.b64encode(b'me:pass').decode()}"
    with _server({"/api/2.0/mlflow/experiments/search": {}}, auth) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        assert "MLFLOW_TRACKING_USERNAME" in _find("tracking", settings).fix
        login = {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "pass"}
        assert _find("tracking", settings, **login).status == "ok"


def test_passwords_of_databases_are_not_shown(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"postgresql://me:{SECRET}@127.0.0.1:9/x")
    found = _find("tracking", settings)
    assert found.status == "fail"
    assert "postgresql://***@127.0.0.1:9/x" in found.detail
    assert SECRET not in found.detail + found.fix


def test_champion_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _find("registry", settings).status == "not used"
    model = {"registered_model": {"name": "text-encoder", "aliases": [{"alias": "champion", "version": "7"}]}}
    with _server({"/api/2.0/mlflow/registered-models/get": model}) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        assert _find("registry", settings) == ok("text-encoder: champion is version 7")


def test_endpoint_serves_the_model_that_is_asked_for(raw_params: dict[str, Any]) -> None:
    with _server({"/v1/models": {"data": [{"id": "phi"}]}}, f"Bearer {SECRET}") as url:
        for model, key, status in (("phi", SECRET, "ok"), ("other", SECRET, "fail"), ("phi", "wrong", "fail")):
            server = {"engine": "server", "urls": [f"{url}/v1"], "model": model, "api_key_env": "KEY"}
            models = dict.fromkeys(raw_params["synthesize"]["models"], server)
            found = _find("llm_endpoint", _changed(raw_params, synthesize={"models": models}), KEY=key)
            assert found.status == status
            assert SECRET not in found.detail + found.fix


def test_dvc_remote(settings: Settings, tmp_path: Path) -> None:
    assert "run the command in the project's folder" in _find("dvc_remote", settings).fix
    (tmp_path / ".dvc").mkdir()
    config = tmp_path / ".dvc" / "config"
    config.write_text("")
    assert _find("dvc_remote", settings).status == "not used"
    config.write_text(f"[core]\n    remote = disk\n['remote \"disk\"']\n    url = {tmp_path / 'remote'}\n")
    assert _find("dvc_remote", settings).status == "fail"
    (tmp_path / "remote").mkdir()
    assert _find("dvc_remote", settings).status == "ok"


def test_clock_that_is_an_hour_off(settings: Settings) -> None:
    with _server({}, date="Sat, 21 Nov 2020 10:00:00 GMT") as url:
        found = _find("clock", settings, PREFECT_API_URL=f"{url}/api")
    assert (found.status, "NTP" in found.fix) == ("fail", True)
    with _server({}) as url:
        assert _find("clock", settings, PREFECT_API_URL=f"{url}/api").status == "ok"


def test_little_room_is_said(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, status in ((5e8, "fail"), (5e9, "warn"), (5e10, "ok")):
        usage = type("Usage", (), {"free": free, "total": 1e11})
        monkeypatch.setattr("shutil.disk_usage", lambda _path, usage=usage: usage)
        assert _find("disk", settings).status == status


def test_driver_and_torch_say_their_cuda() -> None:
    assert driver_cuda("| NVIDIA-SMI 580.1  Driver Version: 580.1  CUDA Version: 13.0  |") == (13, 0)
    assert driver_cuda("nothing") is None
    assert torch_cuda() is not None


def test_versions(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _find("versions", settings)
    assert (found.status, version("mlflow") in found.detail) == ("ok", True)
    monkeypatch.setattr("components.doctor.checks.versions.requires", lambda _name: ["numpy>=99", "no-such-package"])
    found = _find("versions", settings)
    assert found.status == "fail"
    assert "is not >=99; no-such-package is missing" in found.detail


def test_broken_settings_fail_once(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("world: {nam: x}")
    lines = {line.check: line.status for line in examine(surroundings(tmp_path), 120)}
    assert lines["params.yaml"] == "fail"
    assert lines["registry"] == lines["generation store"] == lines["LLM endpoint"] == "not used"


@pytest.mark.parametrize(("finding", "code"), [(ok("fine"), 0), (fail("broken", "fix [it]"), 1)])
def test_command(finding: Finding, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.doctor.examine.all_checks", lambda: {"a": Check("A", 0, lambda _around: finding)})
    as_json = CliRunner().invoke(app, ["doctor", "--json"])
    assert as_json.exit_code == code
    assert json.loads(as_json.stdout)[0]["status"] == finding.status
    table = CliRunner().invoke(app, ["doctor"])
    assert (table.exit_code, finding.fix in table.stdout) == (code, True)
