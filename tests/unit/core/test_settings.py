"""params.yaml: every fault is one line that names the key or the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from components.core.settings import Settings, load_settings
from components.core.settings.block import read_yaml
from components.core.system.errors import InputError

REPO = Path(__file__).parents[3]
UNKNOWN = {
    ("prepare", "sorce"): "unknown key 'prepare.sorce': did you mean 'source'?",
    ("validate", "max_word"): "unknown key 'validate.max_word': did you mean 'max_words'?",
    ("train", "qqqq"): "unknown key 'train.qqqq': remove it",
    ("embed", "captions"): "unknown key 'embed.captions': remove it",
}
OUT_OF_RANGE: tuple[tuple[str, str, Any], ...] = (
    ("prepare", "rare_word_share", "often"),
    ("validate", "min_words", 0),
    ("embed", "batch_size", None),
    ("train", "seed", 2**63),
    ("base", "source", "magic"),
)
TEXTS = {
    b"": "params.yaml is empty: restore it, for example by `git checkout",
    b"- a\n- b": "params.yaml has no blocks",
    b"a: [1": "is not valid YAML",
    b"a: b: c": "is not valid YAML",
    b"\xff\xfe\x00\x81": "is not valid YAML",
    b"world:\n\tname: x\n": "line 2, column 1: a tab, which YAML does not allow: indent with spaces",
    b"world: {}\ntrain: {}\nworld: {}\n": "line 3, column 1: key 'world' is already in line 1 of the same block",
    b"methods:\n  a: {lr: 1,\n    lr: 2}\n": "line 3, column 5: key 'lr' is already in line 2 of the same block",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "params.yaml"


def _refusal(path: Path, content: Any) -> str:
    path.write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
    with pytest.raises(InputError) as refused:
        load_settings(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_shipped_settings_are_frozen_and_only_a_base_from_scratch_needs_its_block(raw_params: Any) -> None:
    settings = load_settings(REPO / "params.yaml")
    assert settings.prepare.source == "synthetic"
    assert settings.validation.check_scene_facts is True
    with pytest.raises(ValidationError, match="frozen"):
        settings.dataset.seed = 3  # type: ignore[misc]
    for base in (
        {"source": "open_clip", "model": "ViT-B-32-quickgelu", "pretrained": "openai"},
        {"source": "file", "model": "ViT-B-32", "file": "weights.safetensors"},
    ):
        assert Settings.model_validate(raw_params | {"base": base}).base.scratch is None
    with pytest.raises(ValidationError, match="source 'scratch' needs `scratch`"):
        Settings.model_validate(raw_params | {"base": {"source": "scratch", "model": "ViT-B-32"}})


def test_wrong_keys_and_values_are_named(path: Path, raw_params: dict[str, Any]) -> None:
    for (block, key), message in UNKNOWN.items():
        assert message in _refusal(path, raw_params | {block: raw_params[block] | {key: 1}})
    # A key of another block is not a hint.
    (name, task), *_ = raw_params["synthesize"]["tasks"].items()
    for key, hint in (("caption", "did you mean 'max_captions'?"), ("workers", "remove it")):
        block = raw_params["synthesize"] | {"tasks": {name: task | {key: 400}}}
        refusal = _refusal(path, raw_params | {"synthesize": block})
        assert f"unknown key 'synthesize.tasks.{name}.{key}': {hint}" in refusal
    for block, key, value in OUT_OF_RANGE:
        refusal = _refusal(path, raw_params | {block: raw_params[block] | {key: value}})
        assert f"params.yaml: key '{block}.{key}'" in refusal, value
    raw_params["embedd"] = raw_params.pop("embed")
    assert "unknown key 'embedd': did you mean 'embed'" in _refusal(path, raw_params)


def test_wrong_texts_are_explained(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"params\.yaml is missing: run the command in the project's folder"):
        load_settings(path)
    for text, message in TEXTS.items():
        assert message in _refusal(path, text), text
    run = f"world: !!python/object/apply:os.mkdir ['{tmp_path / 'made'}']\n"
    assert "is not valid YAML" in _refusal(path, run.encode())
    assert not (tmp_path / "made").exists()


def test_a_key_replaces_the_key_of_a_merged_anchor() -> None:
    text = "a: &a {method: paraclip, lr: 0.1}\nb: {<<: *a, lr: 0.2}\n"
    assert read_yaml(text)["b"] == {"method": "paraclip", "lr": 0.2}
