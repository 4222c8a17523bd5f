"""SmolLM2 is unpacked once, and what is read from the cache is what the package holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from components.captions.language_models import language_model, smollm2
from components.captions.language_models.language_model import load_language_model
from components.captions.language_models.smollm2 import smollm2_folder, unpack_smollm2
from components.core.system.errors import InputError
from tests.support.tiny_language_model import save_tiny_language_model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def unpacked(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that the package, which here holds a tiny model, was unpacked."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, times = save_tiny_language_model(tmp_path / "tiny"), []

    def unpack() -> tuple[Any, Any]:
        times.append("unpacked")
        return AutoModelForCausalLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)

    for module in (smollm2, language_model):
        monkeypatch.setattr(module, "unpack_smollm2", unpack)
    return times


def _logits(model: Any, tokenizer: Any) -> torch.Tensor:
    ids = tokenizer("a dog", return_tensors="pt")
    with torch.inference_mode():
        logits: torch.Tensor = model(**ids).logits
    return logits


def test_it_is_unpacked_once(cache: Path, unpacked: list[str]) -> None:
    first, second = (load_language_model(None, torch.float32) for _ in range(2))
    assert unpacked == ["unpacked"]
    assert torch.equal(_logits(first.model, first.tokenizer), _logits(second.model, second.tokenizer))
    assert smollm2_folder().parent == cache / "cliptune"


def test_where_there_is_no_cache_it_is_unpacked_each_time(cache: Path, unpacked: list[str]) -> None:
    cache.write_text("a file where the folder should be")
    for _ in range(2):
        load_language_model(None, torch.float32)
    assert unpacked == ["unpacked"] * 2


def test_a_damaged_cache_says_what_to_delete(cache: Path, unpacked: list[str]) -> None:
    weights = smollm2_folder() / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    with pytest.raises(InputError, match=rf"cannot be loaded \(.*\): delete {weights.parent}"):
        load_language_model(None, torch.float32)


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_the_cached_model_is_the_packages() -> None:
    model, tokenizer = unpack_smollm2()
    loaded = load_language_model(None, torch.float32)
    assert smollm2_folder().is_dir()
    found, expected = loaded.model.state_dict(), model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert loaded.model.generation_config.to_dict() == model.generation_config.to_dict()
    chat = [{"role": "user", "content": "a d\u00f6g"}]
    texts = [one.apply_chat_template(chat, add_generation_prompt=True) for one in (loaded.tokenizer, tokenizer)]
    assert texts[0] == texts[1]
    sides = [(one.padding_side, one.pad_token_id, one.eos_token_id) for one in (loaded.tokenizer, tokenizer)]
    assert sides[0] == sides[1]
