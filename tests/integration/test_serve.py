"""`cliptune serve` and `mlflow models serve` as processes, with a real registry: three minutes on an idle machine."""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch

from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from components.registry.promotion import promote
from research.measure.serving_client import Job, run_job
from tests.conftest import REPO, TINY
from tests.support.mlflow_servers import running
from tests.support.ports import free_ports
from tests.support.registry_project import make_project
from tests.support.serving import wait_until
from tests.support.serving_registry import point, register_champion

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
TOKEN = "a-token-for-this-test"
TEXTS = ["a dog", "two cats on a sofa", "<b>caf\u00e9</b> \U0001f600"]
SWAP_S = 120.0


@dataclass
class Registry:
    """A store with two versions that share an image tower.

    Attributes:
        store: its address.
        encoders: version -> encoder.
    """

    store: str
    encoders: dict[str, Encoder]

    def check(self, model: str, texts: list[str], vectors: list[list[float]]) -> None:
        """The vectors are those of the version that the answer names."""
        name, _, version = model.partition("/")
        assert name == "text-encoder"
        np.testing.assert_allclose(vectors, self.encoders[version].embed_texts(texts), atol=1e-5)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    folder = tmp_path_factory.mktemp("registry")
    store = f"sqlite:///{folder / 'mlflow.db'}"
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        made.append(Encoder.create(f"encoder{seed}", "tiny", TINY, "test"))
    made[1].model.visual.load_state_dict(made[0].model.visual.state_dict())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", store)
        patch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        yield Registry(store, {register_champion(encoder, alias=None): encoder for encoder in made})


@contextmanager
def _served(registry: Registry, folder: Path, token: str, *options: str) -> Iterator[tuple[str, Popen[bytes]]]:
    """The champion's server; yields its address and its process."""
    port = free_ports(1)[0]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "components.cli", "serve", "--port", str(port), "--poll-seconds", "0.2", *options]
    environment = {"MLFLOW_TRACKING_URI": registry.store, "CLIPTUNE_SERVE_TOKEN": token, "PYTHONPATH": str(REPO)}
    with running(command, f"{address}/health", folder, environment) as process:
        yield address, process


def _client(address: str, token: str = TOKEN) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key=token, max_retries=0, timeout=60)


def test_the_openai_client_and_every_new_champion(registry: Registry, tmp_path: Path) -> None:
    point("champion", "1")
    with _served(registry, tmp_path / "elsewhere", TOKEN) as (address, _):
        client = _client(address)
        _check_openai_client(client, address, registry)
        _check_swap(client, registry)


def _check_openai_client(client: openai.OpenAI, address: str, registry: Registry) -> None:
    # Without a format the client requests base64 and decodes it.
    for answer in (
        client.embeddings.create(input=TEXTS, model="text-encoder@champion", user="somebody"),
        client.embeddings.create(input=TEXTS, model="text-encoder/1", encoding_format="float", dimensions=16),
    ):
        registry.check(answer.model, TEXTS, [row.embedding for row in answer.data])
        assert [row.index for row in answer.data] == [0, 1, 2]
        # Start, words and end of the first two are 4 and 7 tokens.
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 11
    assert client.embeddings.create(input="a dog", model="text-encoder").usage.prompt_tokens == 4
    raw = client.embeddings.with_raw_response.create(input="a dog", model="text-encoder")
    assert raw.headers["x-cliptune-model"] == "text-encoder/1"
    assert {"text-encoder/1", "text-encoder@champion"} < {model.id for model in client.models.list()}
    with pytest.raises(openai.AuthenticationError) as wrong_token:
        _client(address, "a-token-of-another-test").embeddings.create(input="a", model="text-encoder")
    assert wrong_token.value.code == "invalid_api_key"
    with pytest.raises(openai.BadRequestError) as wrong_size:
        client.embeddings.create(input="a", model="text-encoder", dimensions=8)
    assert wrong_size.value.param == "dimensions"


def _check_swap(client: openai.OpenAI, registry: Registry) -> None:
    """While clients ask without a pause the champion changes; each answer is right for the version that it names."""
    answered: list[str] = []
    done = threading.Event()

    def ask(number: int) -> None:
        texts = [f"a dog and {number} cats", TEXTS[number % len(TEXTS)]]
        while not done.is_set():
            answer = client.embeddings.create(input=texts, model="text-encoder")
            registry.check(answer.model, texts, [row.embedding for row in answer.data])
            answered.append(answer.model)

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, number) for number in range(4)]
        try:
            wait_until(lambda: "text-encoder/1" in answered, SWAP_S)
            point("champion", "2")
            wait_until(lambda: "text-encoder/2" in answered, SWAP_S)
        finally:
            done.set()
        for one in asking:
            one.result()
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(input="a", model="text-encoder/1")


def test_overload_then_an_orderly_end(registry: Registry, tmp_path: Path) -> None:
    point("champion", "2")
    options = ("--max-queue", "128", "--max-texts", "16", "--batch-size", "16", "--cache", "0")
    with _served(registry, tmp_path / "elsewhere", "", *options) as (address, process):
        _check_overload(address, registry)
        _check_sigterm(address, registry, process)


def _check_overload(address: str, registry: Registry) -> None:
    texts = [f"a dog and {number} cats" for number in range(300)]
    port = int(address.rpartition(":")[2])
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        outcome = pool.submit(run_job, Job(port, "/v1/embeddings", "input", texts, 300, 3.0)).result()
    assert outcome.lost == 0
    assert {one.status for one in outcome.answers} == {200, 429}
    known = dict(zip(texts, registry.encoders["2"].embed_texts(texts), strict=True))
    assert outcome.largest_difference(known) < 1e-5
    assert httpx.get(f"{address}/health").json()["ready"]


def _check_sigterm(address: str, registry: Registry, process: Popen[bytes]) -> None:
    """Every request that the server accepted before SIGTERM is answered."""
    draw = random.Random(0)
    # New words take the tokenizer long.
    requests = [[" ".join(_word(draw) for _ in range(60)) for _ in range(16)] for _ in range(7)]

    def ask(texts: list[str]) -> httpx.Response:
        return httpx.post(f"{address}/v1/embeddings", json={"input": texts}, timeout=60)

    def taken() -> bool:
        numbers = dict(line.split(" ") for line in httpx.get(f"{address}/metrics").text.splitlines() if line[0] != "#")
        return float(numbers["cliptune_queue_texts"]) + float(numbers["cliptune_texts_total"]) - before >= 6 * 16

    numbers = httpx.get(f"{address}/metrics").text
    before = float(numbers.partition("\ncliptune_texts_total ")[2].partition("\n")[0])
    with ThreadPoolExecutor(len(requests)) as pool:
        futures = [pool.submit(ask, texts) for texts in requests]
        wait_until(taken)
        waiting = sum(not one.done() for one in futures)
        process.send_signal(signal.SIGTERM)
        answers = [one.result() for one in futures]
    assert waiting > 0
    for texts, answer in zip(requests, answers, strict=True):
        assert answer.status_code == 200
        registry.check(answer.json()["model"], texts, [row["embedding"] for row in answer.json()["data"]])
    assert process.wait(30) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/health")


def _word(draw: random.Random) -> str:
    return "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(12))


def _ask(address: str, question: dict[str, Any]) -> Any:
    return httpx.post(f"{address}/invocations", json=question, timeout=120).raise_for_status().json()["predictions"]


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
