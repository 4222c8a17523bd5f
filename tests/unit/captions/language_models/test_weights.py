"""Weights are named by what they are, not by where they lie."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from components.captions.language_models.weights import find_weights
from components.core.system.errors import InputError

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
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hugging Face cache with one model."""
    model = tmp_path / "hub" / "models--org--name"
    (model / "snapshots" / COMMIT).mkdir(parents=True)
    (model / "snapshots" / COMMIT / "config.json").write_text("{}")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_moved_folder_keeps_its_label(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    label = find_weights(str(folder)).label
    assert label.startswith("student@")
    (tmp_path / "elsewhere").mkdir()
    shutil.move(folder, tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_weights("student").label == find_weights("./student").label == label
    monkeypatch.chdir("student")
    assert find_weights(".").label == label


@pytest.mark.parametrize(
    ("name", "content", "same"),
    [
        ("model.safetensors", "other weights", False),
        ("model-2.safetensors", "more weights", False),
        ("chat_template.jinja", "other words", False),
        ("tokenizer_config.json", '{"chat_template": "other words"}', False),
        ("tokenizer_config.json", '{"model_max_length": 9}', True),
        ("tokenizer_config.json", "[", True),
        ("config.json", '{"transformers_version": "9"}', True),
        ("README.md", "about it", True),
    ],
)
def test_weights_and_chat_template_make_the_revision(folder: Path, name: str, content: str, same: bool) -> None:
    before = find_weights(str(folder)).revision
    (folder / name).write_text(content)
    assert (find_weights(str(folder)).revision == before) is same


def test_a_name_is_known_by_the_commit_in_the_cache_or_the_one_asked_for(cache: Path) -> None:
    cached = find_weights("org/name")
    assert (cached.label, cached.commit) == (f"org/name@{COMMIT}", COMMIT)
    named = find_weights("org/other", "v1.0")
    assert (named.label, named.commit) == ("org/other@v1.0", "v1.0")


def test_what_is_missing_is_said_in_one_line(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"org/other is neither a folder nor .* run `hf download org/other`"):
        find_weights("org/other")
    with pytest.raises(InputError, match=r"model folder .*models/student is missing: make it"):
        find_weights(f"{tmp_path}/models/student")
    with pytest.raises(InputError, match=r"has no weights"):
        find_weights(str(tmp_path))
