"""params.yaml: what is wrong with it is said by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from components.core.errors import InputError
from components.core.settings import Settings, load_settings

REPO = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "params.yaml"


def _load(path: Path, raw: Any) -> Any:
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return load_settings(path)


def test_own_params_load() -> None:
    settings = load_settings(REPO / "params.yaml")
    assert settings.prepare.source == "embedded"
    assert settings.validation.check_facts is True


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings(REPO / "params.yaml").world.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("block", "key", "hint"),
    [
        ("prepare", "sorce", "unknown key 'prepare.sorce': did you mean 'source'?"),
        ("validate", "max_word", "unknown key 'validate.max_word': did you mean 'max_words'?"),
        ("train", "qqqq", "unknown key 'train.qqqq': remove it"),
    ],
)
def test_unknown_key(path: Path, raw_params: dict[str, Any], block: str, key: str, hint: str) -> None:
    raw_params[block][key] = 1
    with pytest.raises(InputError) as caught:
        _load(path, raw_params)
    assert hint in str(caught.value)


def test_unknown_block(path: Path, raw_params: dict[str, Any]) -> None:
    raw_params["validation"] = raw_params.pop("validate")
    with pytest.raises(InputError, match=r"params\.yaml: .*valid"):
        _load(path, raw_params)


@pytest.mark.parametrize(
    ("block", "key", "value"),
    [
        ("prepare", "rare_word_share", "often"),
        ("prepare", "rare_word_share", 1.5),
        ("validate", "min_words", 0),
        ("validate", "min_similarity", 2),
        ("embed", "batch_size", -1),
        ("embed", "batch_size", None),
        ("world", "seed", -1),
        ("train", "seed", 2**63),
        ("evaluate", "seed", -1),
        ("base", "source", "magic"),
    ],
)
def test_wrong_type_or_range(path: Path, raw_params: dict[str, Any], block: str, key: str, value: Any) -> None:
    raw_params[block][key] = value
    with pytest.raises(InputError, match=rf"params\.yaml: key '{block}\.{key}'"):
        _load(path, raw_params)


def test_missing_key(path: Path, raw_params: dict[str, Any]) -> None:
    del raw_params["synthesize"]["store"]
    with pytest.raises(InputError, match=r"key 'synthesize\.store': Field required"):
        _load(path, raw_params)


def test_missing_file(path: Path) -> None:
    with pytest.raises(InputError, match=r"params\.yaml is missing: run the command in the project's folder"):
        load_settings(path)


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "\t- x"])
def test_no_yaml(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="no valid YAML"):
        load_settings(path)


@pytest.mark.parametrize("text", ["", "just words", "- a\n- b"])
def test_no_mapping(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"params\.yaml: "):
        load_settings(path)


def test_what_is_merged_gives_way_to_the_mappings_own_keys(path: Path) -> None:
    text = (REPO / "params.yaml").read_text("utf-8")
    text = text.replace(
        "  paraclip:\n", "  a: &a {method: paraclip, lr: 0.1}\n  b: {<<: *a, lr: 0.2}\n  paraclip:\n", 1
    )
    path.write_text(text, encoding="utf-8")
    assert load_settings(path).methods["b"] == {"method": "paraclip", "lr": 0.2}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "params.yaml: it is empty: bring the blocks back, as by `git checkout"),
        ("# a comment\n", "params.yaml: it is empty"),
        ("- a\n- b", "params.yaml: it holds no blocks"),
        ("world:\n\tname: x\n", "line 2, column 1: a tab, which YAML does not take: indent with spaces"),
        ("world: {}\ntrain: {}\nworld: {}\n", "line 3, column 1: key 'world' is already in line 1 of the same block"),
        ("methods:\n  a: {lr: 1,\n    lr: 2}\n", "line 3, column 5: key 'lr' is already in line 2 of the same block"),
    ],
)
def test_what_is_wrong_is_told_by_line(path: Path, text: str, told: str) -> None:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_settings(path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_may_replace_that_of_an_anchor(path: Path) -> None:
    path.write_text(
        (REPO / "params.yaml")
        .read_text("utf-8")
        .replace("embed:\n", "train_more: &more {batch_size: 1}\nembed:\n  <<: *more\n", 1)
    )
    with pytest.raises(InputError, match="unknown key 'train_more'"):
        load_settings(path)


def test_binary_file(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InputError, match="no valid YAML"):
        load_settings(path)


def test_python_tag_is_refused_and_not_run(path: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    path.write_text(f"world: !!python/object/apply:os.mkdir ['{trace}']\n", encoding="utf-8")
    with pytest.raises(InputError, match="no valid YAML"):
        load_settings(path)
    assert not trace.exists()


def test_a_mistyped_key_is_named_as_it_was_typed(tmp_path: Path, raw_params: dict[str, Any]) -> None:
    raw_params["embedd"] = raw_params.pop("embed")
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params))
    with pytest.raises(InputError, match="unknown key 'embedd': did you mean 'embed'"):
        load_settings(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    "base",
    [
        {"source": "open_clip", "model": "ViT-B-32-quickgelu", "pretrained": "openai"},
        {"source": "file", "model": "ViT-B-32", "file": "weights.safetensors"},
    ],
)
def test_a_base_as_the_readme_writes_it_is_taken(raw_params: dict[str, Any], base: dict[str, Any]) -> None:
    assert Settings.model_validate(raw_params | {"base": base}).base.scratch is None


def test_a_base_from_scratch_needs_its_settings(raw_params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="source 'scratch' needs `scratch`"):
        Settings.model_validate(raw_params | {"base": {"source": "scratch", "model": "ViT-B-32"}})
