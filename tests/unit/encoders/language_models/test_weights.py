"""Weights are named by what they are, not by where they lie."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from components.core.system.errors import InputError
from components.encoders.language_models.weights import find_weights

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


def test_weights_and_chat_template_make_the_revision(folder: Path) -> None:
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


def test_a_name_is_known_by_the_commit_in_the_cache_or_the_one_asked_for(cache: Path) -> None:
    cached = find_weights("org/name")
    assert (cached.label, cached.commit) == (f"org/name@{COMMIT}", COMMIT)
    named = find_weights("org/other", "v1.0")
    assert (named.label, named.commit) == ("org/other@v1.0", "v1.0")


def test_missing_weights_are_named_with_the_fix(cache: Path, tmp_path: Path) -> None:
    for name, message in (
        ("org/other", r"org/other is neither a folder nor .* run `hf download org/other`"),
        (f"{tmp_path}/models/student", r"model folder .*models/student is missing: make it"),
        (str(tmp_path), r"has no weights"),
    ):
        with pytest.raises(InputError, match=message):
            find_weights(name)
