"""The servers of infra/ listen only on this machine, show no secret and have no password that the files contain."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.support.ports import free_ports
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
REPO = Path(__file__).parents[2]
INFRA = REPO / "infra"
LOOPBACK = {"127.0.0.1", "::1"}
UP_WITHIN_S = 400.0
SECRET = "password|secret|token|credential|api_?key|auth_string"
LITERAL = re.compile(rf"(?:{SECRET})\w*[\"']?\]?(?:\s*:\s*\w+)?\s*[=:]\s*[rbf]?[\"'][^{{]", re.IGNORECASE)
"""A text that Python code assigns to such a name, or gives to such a key or argument."""


def _listening(pid: int) -> dict[int, set[str]]:
    """Port -> addresses that a process and all below it listen on."""
    parent = psutil.Process(pid)
    members = {member.pid for member in [parent, *parent.children(recursive=True)]}
    found: dict[int, set[str]] = {}
    for one in psutil.net_connections("inet"):
        if one.pid in members and one.status == psutil.CONN_LISTEN:
            found.setdefault(one.laddr.port, set()).add(one.laddr.ip)
    return found


@contextmanager
def _started(command: list[str], log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)
        psutil.wait_procs(family, timeout=60)


def test_the_stack(tmp_path: Path) -> None:
    prefect, mlflow = free_ports(2)
    (tmp_path / "flows").symlink_to(REPO / "flows")
    whole = yaml.safe_load((REPO / "prefect.yaml").read_text("utf-8"))
    sweep = [one for one in whole["deployments"] if one["entrypoint"].startswith("flows/sweep.py")]
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(whole | {"deployments": sweep}))
    database = tmp_path / f"{secrets.token_hex(8)}.db"
    address = f"sqlite:///{database}"
    environment = {**os.environ, "PYTHONPATH": str(REPO), "MLFLOW_TRACKING_URI": address}
    command = [sys.executable, "-m", "infra.stack", "--prefect-port", str(prefect), "--mlflow-port", str(mlflow)]
    log = tmp_path / "log"
    with _started(command, log, cwd=tmp_path, env=environment) as stack:
        ports = {prefect, mlflow}
        wait_until(
            lambda: (
                stack.poll() is not None or (ports <= {*_listening(stack.pid)} and "Ctrl-C stops" in log.read_text())
            ),
            UP_WITHIN_S,
            log.read_text,
        )
        assert stack.poll() is None, log.read_text()[-3000:]
        listening = _listening(stack.pid)
        lines = [" ".join(member.cmdline()) for member in psutil.Process(stack.pid).children(recursive=True)]
        assert set().union(*listening.values()) <= LOOPBACK, listening
        assert len(lines) >= 3
        assert database.is_file()
        assert [line for line in lines if address in line] == []
        login = tmp_path / "state" / "stack" / "login.env"
        password = login.read_text().split("admin:")[1].split()[0]
        assert login.stat().st_mode & 0o077 == 0
        assert log.read_text().count(password) == 1
        assert [line for line in lines if password in line] == []
        _attack(prefect, mlflow, ("admin", password))
    assert stack.returncode == 0


def _attack(prefect: int, mlflow: int, login: tuple[str, str]) -> None:
    """What another site's page, a name that was bound to 127.0.0.1, and another user of the machine can send."""
    api, runs = f"http://127.0.0.1:{prefect}/api", f"http://127.0.0.1:{mlflow}/api/2.0/mlflow"
    foreign = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    asked = httpx.options(f"{api}/flow_runs/filter", headers=foreign)
    assert asked.headers.get("access-control-allow-origin") is None
    questions = {f"{api}/deployments/filter": {}, f"{runs}/experiments/search": {"max_results": 1}}
    for url, body in questions.items():
        for headers in ({}, foreign, {"Host": "evil.example"}):
            assert httpx.post(url, json=body, headers=headers).status_code in (401, 403), (url, headers)
        assert httpx.post(url, json=body, auth=("admin", "guess")).status_code == 401
        assert httpx.post(url, json=body, auth=login).status_code == 200
    own = httpx.options(f"{api}/flow_runs/filter", headers=foreign | {"Origin": f"http://127.0.0.1:{prefect}"})
    assert own.headers["access-control-allow-origin"] == f"http://127.0.0.1:{prefect}"
    rebound = httpx.post(
        f"{runs}/experiments/search", json={"max_results": 1}, auth=login, headers={"Host": "evil.example"}
    )
    assert rebound.status_code == 403


def test_no_file_holds_a_password() -> None:
    binary = (".pyc", ".parquet", ".xz")
    paths = [path for path in INFRA.rglob("*") if path.is_file() and path.suffix not in binary]
    assert len(paths) > 20
    for path in paths:
        text = path.read_text("utf-8")
        assert re.findall(r"\w+://[^\s/:@]+:[^\s@/{}$*]+@\S+", text) == [], path
        if path.suffix == ".py":
            assert not LITERAL.search(text), path
        for document in yaml.safe_load_all(text) if path.suffix in (".yaml", ".json") else []:
            for node in _mappings(document):
                assert node.get("kind") != "Secret", path
                assert "value" not in node or not re.search(SECRET, str(node.get("name")), re.I), (path, node["name"])


def _mappings(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
        yield from _mappings(child)
