"""What infra/ starts is reached from this machine alone, shows no secret, and has no password that others know."""

from __future__ import annotations

import ast
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.integration.conftest import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
REPO = Path(__file__).parents[2]
INFRA = REPO / "infra"
LOOPBACK = {"127.0.0.1", "::1"}
UP_WITHIN_S = 400.0
SECRET_NAME = re.compile(r"password|secret|token|credential|api_?key|auth_string", re.IGNORECASE)


def _listening(pid: int) -> dict[int, set[str]]:
    """Port -> addresses that a process and all below it listen on."""
    parent = psutil.Process(pid)
    members = {member.pid for member in [parent, *parent.children(recursive=True)]}
    found: dict[int, set[str]] = {}
    for one in psutil.net_connections("inet"):
        if one.pid in members and one.status == psutil.CONN_LISTEN:
            found.setdefault(one.laddr.port, set()).add(one.laddr.ip)
    return found


def _wait_until(process: subprocess.Popen[bytes], log: Path, ports: set[int], said: str = "") -> None:
    """Return when it listens on all these ports and has said this."""
    end = time.monotonic() + UP_WITHIN_S
    while not (ports <= set(_listening(process.pid)) and said in log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > end:
            pytest.fail(f"it did not start: {log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)


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
        _wait_until(stack, log, {prefect, mlflow}, "Ctrl-C stops")
        listening = _listening(stack.pid)
        lines = [" ".join(member.cmdline()) for member in psutil.Process(stack.pid).children(recursive=True)]
        assert set().union(*listening.values()) <= LOOPBACK, listening
        assert len(lines) >= 3
        assert database.is_file()
        assert [line for line in lines if address in line] == []
    assert stack.returncode == 0


def test_no_module_holds_a_password() -> None:
    literals = []
    for path in sorted(INFRA.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            pairs: list[tuple[str, ast.expr]] = []
            if isinstance(node, ast.keyword):
                pairs = [(node.arg or "", node.value)]
            elif isinstance(node, ast.Assign):
                pairs = [(ast.unparse(target), node.value) for target in node.targets]
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                pairs = [(ast.unparse(node.target), node.value)]
            elif isinstance(node, ast.Dict):
                pairs = [(ast.unparse(key), value) for key, value in zip(node.keys, node.values, strict=True) if key]
            literals += [
                (path.name, name)
                for name, value in pairs
                if SECRET_NAME.search(name) and isinstance(value, ast.Constant)
            ]
    assert literals == []


def test_no_manifest_holds_a_password() -> None:
    def walk(node: Any) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            yield node
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
            yield from walk(child)

    documents: list[Any] = [json.loads(path.read_text("utf-8")) for path in INFRA.rglob("*.json")]
    for path in INFRA.rglob("*.yaml"):
        documents += yaml.safe_load_all(path.read_text("utf-8"))
    nodes = [node for document in documents for node in walk(document)]
    assert len(nodes) > 100
    assert [node for node in nodes if node.get("kind") == "Secret"] == []
    variables = [node for node in nodes if SECRET_NAME.search(str(node.get("name", ""))) and "value" in node]
    assert variables == []


def test_no_address_holds_a_password() -> None:
    texts = {path: path.read_text("utf-8") for path in INFRA.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert len(texts) > 20
    found = {str(path): re.findall(r"\w+://[^\s/:@]+:[^\s@/{}$*]+@\S+", text) for path, text in texts.items()}
    assert {path: hits for path, hits in found.items() if hits} == {}
