"""The captioner's questions with pictures, answered by the real vLLM: a tiny vision-language model of random weights.

Its answers are random words, so the contents of captions are tested elsewhere, with a scripted server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from PIL import Image

from components.captions.caption_folder import CAPTIONS, caption_folder, find_pictures
from components.captions.generating.client import ServerOptions
from components.captions.generating.engines.server import ServerEngine
from components.captions.generating.store import GenerationStore
from components.captions.prompting.inputs.pictures import to_picture
from components.captions.prompting.request import PICTURE, Request, Sampling
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.language_models.language_model import smollm2_folder
from tests.integration.vllm_server import VllmServer, require_vllm, run_vllm_server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
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
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    require_vllm()
    folder = tmp_path_factory.mktemp("vision")
    _write_model(folder / "model")
    with run_vllm_server(folder / "model", folder / "log") as running:
        yield running


def _engine(server: VllmServer) -> ServerEngine:
    return ServerEngine(ServerOptions.model_validate({"urls": [server.url], "model": server.model}))


def _picture(path: Path, colour: str) -> Path:
    Image.new("RGB", (80, 60), colour).save(path)
    return path


def test_the_answer_depends_on_the_picture(server: VllmServer, tmp_path: Path) -> None:
    engine = _engine(server)

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


def test_an_answer_without_an_end_is_a_failure_and_no_caption(
    server: VllmServer, tmp_path: Path, settings: Settings
) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for colour in ("red", "green", "blue"):
        _picture(pictures / f"{colour}.png", colour)
    with closing(GenerationStore(f"sqlite:///{tmp_path}/store.db")) as store:
        with pytest.raises(InputError, match=r"no picture got a caption .*3 (HTTP 400|the answer was cut at)"):
            caption_folder(find_pictures(pictures), tmp_path / "out", _engine(server), store, settings)
        reasons = str(store.stats())
    # A server with a short context refuses a longer answer instead of cutting it again.
    assert "the answer was cut at" in reasons or "HTTP 400" in reasons
    assert not (tmp_path / "out" / CAPTIONS).exists()
