"""The real vLLM, which `make llm-server` installs: its engine, the captioner's questions with pictures, an export."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from components.captions.caption_folder import CAPTIONS, caption_folder, find_pictures
from components.captions.generating.client import ServerOptions
from components.captions.generating.engines import local
from components.captions.generating.engines.server import ServerEngine
from components.captions.generating.engines.vllm import VllmEngine, VllmOptions, serve
from components.captions.generating.store import GenerationStore
from components.captions.prompting.pictures import to_picture
from components.captions.prompting.request import PICTURE, Request, Sampling
from components.captions.prompting.task import completion
from components.captions.prompting.tasks import find_task
from components.captions.students.save_model import save_model
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.encoders.language_models.language_model import smollm2_folder
from components.registry.export import write_checked
from components.registry.formats import find_format
from tests.conftest import TINY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
PYTHON = Path(__file__).parents[2] / ".venv-llm" / "bin" / "python"

_CAPTIONS = (
    "a black cat on a wooden chair",
    "stock photo: large bouquet right of small crab - red bg",
    "two dogs playing in the snow",
    "IMG_2041.jpg vintage red bicycle against brick wall",
    "a bowl of ramen with egg, 4k wallpaper",
    "woman holding an umbrella at a bus stop",
)
_COMPLETED = ("The dog and the cat", "A photo of a red car shows", "Once upon a time there was")


def require_vllm() -> Path:
    """The Python of vLLM's environment; without one the test is skipped, or fails where one is required."""
    if not PYTHON.is_file():
        reason = ".venv-llm is missing: run `make llm-server`"
        if os.environ.get("CI") or os.environ.get("CLIPTUNE_REQUIRE_LLM_SERVER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return PYTHON


def greedy_requests(model: str) -> list[Request]:
    """Chats of a prompt task and plain completions, to be answered with the likeliest tokens."""
    task, sampling = find_task("paraphrase_1"), Sampling(0.0, 1.0, 24)
    chats = [task.messages({"caption": caption}) for caption in _CAPTIONS] + [completion(text) for text in _COMPLETED]
    keys = [tuple((message["role"], message["content"]) for message in messages) for messages in chats]
    return [Request(task.name, chat, model, sampling, 0) for chat in keys]


def test_its_answers_are_those_of_the_local_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SmolLM2 in float32, in which answers do not depend on the program.
    python, smollm2 = require_vllm(), tmp_path / "smollm2"
    save_model(smollm2, None, torch.float32)
    # A second thread hardly helps with so few requests, and on a busy machine threads wait for each other.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = {"dtype": "float32", "max_model_len": 1024, "concurrency": 5}
    engine = VllmEngine(VllmOptions.model_validate({"model": str(smollm2), "python": python, **options}))
    requests = greedy_requests(engine.model)
    too_long = Request("t", (("user", "dog " * 2000),), engine.model, requests[0].sampling, 0)
    batches = list(engine.answer([*requests, too_long]))
    replies = {reply.request: reply for batch in batches for reply in batch}
    assert sum(len(batch) for batch in batches) == len(replies) == len(requests) + 1
    assert [replies[request].failure for request in requests] == [None] * len(requests)
    refused = replies[too_long]
    assert refused.answer is None
    assert refused.failure is not None
    assert "1024" in refused.failure
    monkeypatch.setattr(local, "bf16_is_native", lambda _device: False)
    alone = local.LocalEngine(local.EmbeddedOptions(base=str(smollm2)))
    asked = alone.answer(greedy_requests(alone.model))
    expected = {reply.request.chat: reply.answer for batch in asked for reply in batch}
    equal = sum(replies[request].answer == expected[request.chat] for request in requests)
    # Two programs sum in different orders, so that the likeliest token sometimes differs.
    assert equal >= 0.75 * len(requests)


_SIDE, _PATCH, _MERGED = 56, 14, 2
_IMAGE_TOKENS = (_SIDE // _PATCH // _MERGED) ** 2
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<image>{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _write_model(folder: Path) -> None:
    """Idefics 3, the architecture of SmolVLM, with random weights; vLLM runs it without torchvision."""
    from transformers import AutoTokenizer, Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    added = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
    tokenizer.add_special_tokens({"additional_special_tokens": added})
    torch.manual_seed(0)
    layers = {"intermediate_size": 128, "num_hidden_layers": 2}
    vision = {"hidden_size": 64, "num_attention_heads": 4, "image_size": _SIDE, "patch_size": _PATCH}
    text = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2}
    text |= {"vocab_size": len(tokenizer), "max_position_embeddings": 1024, "pad_token_id": tokenizer.pad_token_id}
    text |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    image = tokenizer.convert_tokens_to_ids("<image>")
    config = Idefics3Config(
        vision_config=vision | layers, text_config=text | layers, image_token_id=image, scale_factor=_MERGED
    )
    Idefics3ForConditionalGeneration(config).float().save_pretrained(folder)
    size = {"longest_edge": _SIDE}
    images = Idefics3ImageProcessorPil(size=size, max_image_size=size, do_image_splitting=False)
    Idefics3Processor(images, tokenizer, image_seq_len=_IMAGE_TOKENS, chat_template=_TEMPLATE).save_pretrained(folder)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerEngine]:
    """The engine of a running server of pictures; meanwhile OPENAI_API_KEY has its key."""
    python, folder = require_vllm(), tmp_path_factory.mktemp("vision")
    _write_model(folder / "model")
    options = {"model": folder / "model", "served-model-name": "vision", "dtype": "float32", "max-model-len": 1024}
    options |= {"max-num-seqs": 64, "kv-cache-memory-bytes": 1 << 30}
    flags = ["--enforce-eager", *(f"--{name}={value}" for name, value in options.items())]
    # One thread suffices for few requests, and does not wait for another one on a busy machine.
    environment = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    with serve(python, flags, environment, folder / "log", 1200) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", running.key)
        yield ServerEngine(ServerOptions.model_validate({"urls": [running.url], "model": "vision"}))


def _picture(path: Path, colour: str) -> Path:
    Image.new("RGB", (80, 60), colour).save(path)
    return path


def test_the_answer_depends_on_the_picture(engine: ServerEngine, tmp_path: Path) -> None:
    def asked(colour: str, number: int) -> Request:
        path = _picture(tmp_path / f"{number}.png", colour)
        chat = (("user", f"{PICTURE}Describe this picture."),)
        return Request(
            "t", chat, engine.model, Sampling(0.0, 1.0, 12), 0, (to_picture(path.read_bytes(), path, path.name),)
        )

    requests = [asked("red", 0), asked("blue", 1), asked("red", 2)]
    replies = {reply.request: reply for batch in engine.answer(requests) for reply in batch}
    red, blue, again = (replies[request].answer for request in requests)
    assert red
    assert red == again
    assert red != blue


def test_an_answer_without_an_end_is_no_caption(engine: ServerEngine, tmp_path: Path, settings: Settings) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for colour in ("red", "green", "blue"):
        _picture(pictures / f"{colour}.png", colour)
    with closing(GenerationStore(f"sqlite:///{tmp_path}/store.db")) as store:
        with pytest.raises(InputError, match=r"no picture got a caption .*3 (HTTP 400|the answer was cut at)"):
            caption_folder(find_pictures(pictures), tmp_path / "out", engine, store, settings)
        reasons = str(store.stats())
    # A server with a short context refuses a longer answer instead of cutting it again.
    assert "the answer was cut at" in reasons or "HTTP 400" in reasons
    assert not (tmp_path / "out" / CAPTIONS).exists()


TEXTS = ["a dog", "two cats on a sofa", "It's 2 O'clock!", "a child on a couch, with no dog"]
# Heads of a width that vLLM's processor build knows.
_CHANGES = {"vision_cfg": {"width": 64, "head_width": 64}, "text_cfg": {"width": 64, "heads": 1, "context_length": 77}}


def test_vllm_serves_the_exported_folder(tmp_path: Path) -> None:
    python = require_vllm()
    torch.manual_seed(3)
    # As in CLIP, vectors are as wide as the text tower; vLLM takes no narrower ones.
    config = TINY | {"embed_dim": 64} | {tower: TINY[tower] | changes for tower, changes in _CHANGES.items()}
    encoder, folder = Encoder.create("small", "small", config, "test"), tmp_path / "exported"
    write_checked(encoder, find_format("vllm"), folder)
    options = {"model": folder, "runner": "pooling", "served-model-name": "text-encoder", "dtype": "float32"}
    flags = ["--enforce-eager", *(f"--{name}={value}" for name, value in options.items())]
    environment = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with serve(python, flags, environment, tmp_path / "log", 1200) as running:
        headers = {"Authorization": f"Bearer {running.key}"}
        asked = {"model": "text-encoder", "input": TEXTS}
        answer = httpx.post(f"{running.url}/embeddings", json=asked, headers=headers, timeout=300).raise_for_status()
    found = np.array([one["embedding"] for one in answer.json()["data"]], np.float32)
    np.testing.assert_allclose(unit_rows(found)[0], encoder.embed_texts(TEXTS), atol=1e-4)
