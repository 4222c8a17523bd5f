"""An exported encoder, loaded by the library it is for, gives the same features."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from components.cli import app
from components.core.errors import InputError
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.encoders.adapter.language_tower import Strategy
from components.encoders.new_text_towers import with_language_tower
from components.registry.export import export_encoder, write_checked
from components.registry.formats import find_format
from components.registry.formats.format import Features
from tests.conftest import TINY

TEXTS = ["a dog", "It's 2 O'clock!", "two   cats\non a sofa", 'naïve crème — n° 42 "quoted"', "long " * 60]


def _images(size: int) -> list[Image.Image]:
    pixels = np.random.default_rng(1).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    return [Image.fromarray(image) for image in pixels]


def _encoder(**changes: Any) -> Encoder:
    config = deepcopy(TINY)
    for key, value in changes.items():
        if isinstance(value, dict):
            config[key] |= value
        else:
            config[key] = value
    torch.manual_seed(3)
    return Encoder.create("small", "small", config, "test")


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["open_clip", "huggingface", "sentence_transformers"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"quick_gelu": True},
        {"custom_text": True},
        {"vision_cfg": {"mlp_ratio": 2.0}, "text_cfg": {"mlp_ratio": 3.0, "context_length": 12}},
    ],
    ids=["plain", "quick_gelu", "custom_text", "other sizes"],
)
def test_features_are_the_same(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    encoder, folder = _encoder(**changes), tmp_path / "exported"
    assert "features of 1,000 texts differ by" in write_checked(encoder, find_format(name), folder)
    images = _images(16)
    found = find_format(name).read(folder, TEXTS, images)
    np.testing.assert_allclose(found.texts, encoder.embed_texts(TEXTS), atol=1e-5)
    assert found.images is not None
    np.testing.assert_allclose(found.images, encoder.embed_images([_png(image) for image in images]), atol=1e-5)
    assert not [path for path in folder.rglob("*") if path.suffix in (".bin", ".pt", ".pth", ".pkl")]


def test_open_clip_prepares_images_as_timms_tower_wants_them(tmp_path: Path) -> None:
    tower = {"timm_model_name": "test_vit", "timm_pool": "", "mean": [0.5, 0.4, 0.6], "std": [0.5, 0.3, 0.2]}
    encoder, folder = _encoder(vision_cfg=tower | {"image_size": 160}), tmp_path / "exported"
    write_checked(encoder, find_format("open_clip"), folder)
    images = _images(160)
    found = find_format("open_clip").read(folder, TEXTS, images).images
    assert found is not None
    np.testing.assert_allclose(found, encoder.embed_images([_png(image) for image in images]), atol=1e-5)
    assert json.loads((folder / "open_clip_config.json").read_text())["preprocess_cfg"]["mean"] == [0.5, 0.4, 0.6]


def test_open_clip_prepares_images_as_we_do(tmp_path: Path) -> None:
    encoder = _encoder()
    write_checked(encoder, find_format("open_clip"), tmp_path / "exported")
    pixels = np.random.default_rng(2).integers(0, 256, (50, 31, 3), dtype=np.uint8)
    found = find_format("open_clip").read(tmp_path / "exported", TEXTS, [Image.fromarray(pixels)])
    expected = encoder.embed_images([_png(Image.fromarray(pixels))])
    np.testing.assert_allclose(found.images, expected, atol=1e-5)


def test_the_folder_says_where_it_comes_from(tmp_path: Path) -> None:
    encoder = _encoder()
    encoder.extra = {"basis": torch.ones(2, 2)}
    encoder.save(tmp_path / "models" / "small")
    line = export_encoder(str(tmp_path / "models" / "small"), "huggingface", str(tmp_path / "exported"))
    assert "differ by" in line
    sidecar = json.loads((tmp_path / "exported" / "encoder.json").read_text())
    assert sidecar["weights_sha256"] == encoder.sidecar.weights_sha256
    assert encoder.sidecar.weights_sha256 in (tmp_path / "exported" / "README.md").read_text()
    assert (tmp_path / "exported" / "method.safetensors").is_file()


def test_what_comes_back_otherwise_is_not_written(tmp_path: Path) -> None:
    form = find_format("open_clip")

    def read(*arguments: Any) -> Features:
        found = form.read(*arguments)
        return Features(unit_rows(found.texts + 1e-3)[0], found.images)

    with pytest.raises(InputError, match="features differ by"):
        write_checked(_encoder(), replace(form, read=read), tmp_path / "exported")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vision_cfg": {"no_ln_pre": True}}, "vision_cfg.no_ln_pre is True"),
        ({"text_cfg": {"proj_bias": True}}, "text_cfg.proj_bias is True"),
        ({"text_cfg": {"pool_type": "last"}}, "text_cfg.pool_type is last"),
        ({"vision_cfg": {"layers": [1, 1, 1, 1], "width": 8, "patch_size": None}}, "no square vision transformer"),
    ],
)
def test_clip_model_cannot_be_everything(
    changes: dict[str, Any], words: str, tmp_path: Path, tiny_encoder: Any
) -> None:
    config = {key: value | changes.get(key, {}) if isinstance(value, dict) else value for key, value in TINY.items()}
    tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update={"architecture": config})
    with pytest.raises(InputError, match=words) as error:
        write_checked(tiny_encoder, find_format("huggingface"), tmp_path / "exported")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("strategy", "added"), [("finetuned", 0), ("alignment", 2)])
def test_sentence_transformers_reads_language_models(
    strategy: Strategy, added: int, tmp_path: Path, language_folders: dict[str, Path]
) -> None:
    encoder = with_language_tower(_encoder(), str(language_folders["roberta"]), strategy, added)
    write_checked(encoder, find_format("sentence_transformers"), tmp_path / "exported")
    texts = [*TEXTS, "what <pad> says </s>"]
    found = find_format("sentence_transformers").read(tmp_path / "exported", texts, [])
    np.testing.assert_allclose(found.texts, encoder.embed_texts(texts), atol=1e-5)
    assert found.images is None


@pytest.mark.parametrize("placement", ["layers", "residuals"])
def test_sentence_transformers_has_no_adapters(
    placement: Any, tmp_path: Path, language_folders: dict[str, Path]
) -> None:
    encoder = with_language_tower(_encoder(), str(language_folders["bert"]), "bottleneck", adapter_placement=placement)
    with pytest.raises(InputError, match="adapters inside its language model"):
        write_checked(encoder, find_format("sentence_transformers"), tmp_path / "exported")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "onnx_int8"])
@pytest.mark.parametrize("kind", ["clip", "bert"])
def test_onnx_gives_the_text_features(name: str, kind: str, tmp_path: Path, language_folders: dict[str, Path]) -> None:
    encoder = (
        _encoder() if kind == "clip" else with_language_tower(_encoder(), str(language_folders[kind]), "bottleneck")
    )
    told = write_checked(encoder, find_format(name), tmp_path / "exported")
    texts = [*TEXTS, "what [PAD] says [SEP]"]
    found = find_format(name).read(tmp_path / "exported", texts, [])
    own = encoder.embed_texts(texts)
    if name == "onnx":
        np.testing.assert_allclose(found.texts, own, atol=1e-5)
    else:
        assert "keep a cosine of" in told
        assert 0.98 < (found.texts * own).sum(axis=1).min() < 0.99999


@pytest.mark.parametrize("name", ["open_clip", "huggingface"])
def test_language_model_towers_are_refused(name: str, tmp_path: Path, tiny_encoder: Any) -> None:
    config = TINY | {"text_cfg": {"language_model": "all-MiniLM-L6-v2", "strategy": "frozen"}}
    tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update={"architecture": config})
    with pytest.raises(InputError, match=r"adapted language model.*cliptune serve") as error:
        write_checked(tiny_encoder, find_format(name), tmp_path / "exported")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_command_writes_the_folder(tmp_path: Path) -> None:
    _encoder().save(tmp_path / "small")
    arguments = ["export", "--encoder", str(tmp_path / "small"), "--format", "open_clip"]
    result = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "exported")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "exported" / "open_clip_model.safetensors").is_file()
    again = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "exported")])
    assert again.exit_code == 1
    assert again.output.count("\n") == 1


def test_output_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(InputError, match="is there already"):
        export_encoder("paraclip", "open_clip", str(tmp_path))
    assert (tmp_path / "mine").read_text() == "precious"


def test_unknown_format_lists_the_known() -> None:
    with pytest.raises(
        InputError, match="choose one of huggingface, onnx, onnx_int8, open_clip, sentence_transformers"
    ):
        find_format("tflite")
