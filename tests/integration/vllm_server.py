"""Fixtures of the real vLLM, which `make llm-server` installs, with SmolLM2 in float32 as a Hugging Face folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from components.captions.generating.engines import local
from components.captions.generating.engines.vllm import serve
from components.captions.prompting.request import Request, Sampling
from components.captions.prompting.task import completion
from components.captions.prompting.tasks import find_task
from components.captions.students.save_model import save_model

REPO = Path(__file__).parents[2]
PYTHON = REPO / ".venv-llm" / "bin" / "python"
NAME = "smollm2"
_UP_WITHIN = 1200.0

_CAPTIONS = (
    "a black cat on a wooden chair",
    "stock photo: large bouquet right of small crab - red bg",
    "two dogs playing in the snow",
    "IMG_2041.jpg vintage red bicycle against brick wall",
    "a bowl of ramen with egg, 4k wallpaper",
    "woman holding an umbrella at a bus stop",
)
_COMPLETED = ("The dog and the cat", "A photo of a red car shows", "Once upon a time there was")


@dataclass(frozen=True)
class VllmServer:
    """A running OpenAI-compatible server: its base URL, which ends in /v1, and its name of the model."""

    url: str
    model: str


def require_vllm() -> Path:
    """The Python of vLLM's environment; without one the test is skipped, or fails where one is required."""
    if not PYTHON.is_file():
        reason = ".venv-llm is missing: run `make llm-server`"
        if os.environ.get("CI") or os.environ.get("CLIPTUNE_REQUIRE_LLM_SERVER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return PYTHON


@contextmanager
def run_vllm_server(folder: Path, log: Path) -> Iterator[VllmServer]:
    """Serve the model in `folder`; meanwhile OPENAI_API_KEY has its key."""
    options = {
        "model": folder,
        "served-model-name": NAME,
        "dtype": "float32",
        "max-model-len": 1024,
        "max-num-seqs": 64,
        "kv-cache-memory-bytes": 1 << 30,
    }
    flags = ["--enforce-eager", *(f"--{name}={value}" for name, value in options.items())]
    # One thread suffices for few requests, and does not wait for another one on a busy machine.
    environment = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    with serve(PYTHON, flags, environment, log, _UP_WITHIN) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", running.key)
        yield VllmServer(running.url, NAME)


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 as a Hugging Face folder in float32, in which answers do not depend on the program."""
    folder = tmp_path_factory.mktemp("models") / NAME
    save_model(folder, None, torch.float32)
    return folder


def greedy_requests(model: str) -> list[Request]:
    """Chats of a prompt task and plain completions, to be answered with the likeliest tokens."""
    task, sampling = find_task("paraphrase_1"), Sampling(0.0, 1.0, 24)
    chats = [task.messages({"caption": caption}) for caption in _CAPTIONS] + [completion(text) for text in _COMPLETED]
    keys = [tuple((message["role"], message["content"]) for message in messages) for messages in chats]
    return [Request(task.name, chat, model, sampling, 0) for chat in keys]


@pytest.fixture(scope="session")
def greedy_answers(smollm2: Path) -> dict[tuple[tuple[str, str], ...], str | None]:
    """The local engine's answers to the chats of `greedy_requests`, in float32."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "bf16_is_native", lambda _device: False)
        engine = local.LocalEngine(local.EmbeddedOptions(base=str(smollm2)))
        replies = [reply for batch in engine.answer(greedy_requests(engine.model)) for reply in batch]
    return {reply.request.chat: reply.answer for reply in replies}
