"""The champion behind `mlflow models serve`, asked over HTTP. About a minute on an idle machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from components.registry.promotion import promote
from tests.support.mlflow_servers import running
from tests.support.ports import free_ports
from tests.support.registry_project import make_project

TEXTS = ["a dog", "two cats on a sofa"]


def _ask(address: str, question: dict[str, Any]) -> Any:
    body = json.dumps(question).encode()
    request = Request(f"{address}/invocations", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=120) as answer:
        return json.load(answer)["predictions"]


@pytest.mark.integration
@pytest.mark.timeout(1200)
def test_champion_answers_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, tiny_encoder: Encoder
) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    encoder = make_project(settings, tiny_encoder.sidecar.architecture).add("paraclip", 2, 0.5)
    assert promote(settings).outcome == "promoted"
    port = free_ports(1)[0]
    address = f"http://127.0.0.1:{port}"
    command = ["mlflow", "models", "serve", "-m", "models:/text-encoder@champion", "--env-manager", "local"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with running(command, f"{address}/ping", tmp_path / "elsewhere", {"MLFLOW_TRACKING_URI": store}):
        plain = _ask(address, {"inputs": TEXTS})
        table = _ask(address, {"dataframe_split": {"columns": ["text"], "data": [[text] for text in TEXTS]}})
    expected = encoder.embed_texts(TEXTS)
    np.testing.assert_allclose(plain, expected, atol=1e-5)
    np.testing.assert_allclose(table, expected, atol=1e-5)
