"""An exported encoder, loaded by the library it is for, gives the same features."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.encoders.adapter.language_tower import Strategy
from components.encoders.adapter.sidecar import SIDECAR
from components.encoders.adapter.weights import EXPORTED
from components.evaluation.scoring.results import Folders
from components.registry import export
from components.registry.encoder_lookup import find_encoder
from components.registry.export import ao_loss, write_checked
from components.registry.formats import ExportedVectors, check_export, find_format, format_names
from components.training.base.base import run as base
from components.training.base.published import folder_encoder
from components.training.new_text_towers import with_language_tower
from tests.conftest import TINY
from tests.support.open_clip_folders import FAMILIES, write_folder
from tests.support.shard_making import encoded
from tests.support.typed import cliptune

TEXTS = ["a dog", "It's 2 O'clock!", "two   cats\non a sofa", 'naïve crème — n° 42 "quoted"', "long " * 60]


def _images(size: int) -> list[Image.Image]:
    pixels = np.random.default_rng(1).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    return [Image.fromarray(image) for image in pixels]


def _encoder(**changes: Any) -> Encoder:
    """A tiny encoder, of another architecture where changes are given."""
    torch.manual_seed(3)
    return Encoder.create("small", "small", _config(**changes), "test")


def _config(**changes: Any) -> dict[str, Any]:
    return TINY | {key: TINY[key] | new if isinstance(new, dict) else new for key, new in changes.items()}


CHANGED = {
    "quick_gelu": True, "custom_text": True, "vision_cfg": {"mlp_ratio": 2.0},
    "text_cfg": {"mlp_ratio": 3.0, "context_length": 12},
}  # fmt: skip


@pytest.mark.parametrize("name", ["open_clip", "huggingface", "sentence_transformers"])
@pytest.mark.parametrize("changes", [{}, CHANGED], ids=["plain", "changed"])
def test_features_are_the_same_in_the_library_and_when_read_back(
    name: str, changes: dict[str, Any], tmp_path: Path, raw_params: dict[str, Any]
) -> None:
    encoder, folder = _encoder(**changes), tmp_path / "exported"
    assert "vectors of 1,000 texts differ by" in write_checked(encoder, find_format(name), folder)
    images = _images(16)
    if name == "open_clip":
        pixels = np.random.default_rng(2).integers(0, 256, (50, 31, 3), dtype=np.uint8)
        images.append(Image.fromarray(pixels))
    exported = find_format(name).read(folder, TEXTS, images)
    np.testing.assert_allclose(exported.texts, encoder.embed_texts(TEXTS), atol=1e-5)
    assert exported.images is not None
    np.testing.assert_allclose(exported.images, encoder.embed_images([encoded(image) for image in images]), atol=1e-5)
    assert not [path for path in folder.rglob("*") if path.suffix in (".bin", ".pt", ".pth", ".pkl")]
    raw_params["base"] |= {"source": "file", "file": str(folder)}
    base(Settings.model_validate(raw_params), tmp_path / "base")
    for found in (find_encoder(str(folder)), find_encoder(str(tmp_path / "base"))):
        assert isinstance(found.encoder, Encoder)
        np.testing.assert_allclose(found.encoder.embed_texts(TEXTS), encoder.embed_texts(TEXTS), atol=1e-6)
        assert found.encoder.image_tower_hash() == encoder.image_tower_hash()
        assert found.encoder.sidecar.quick_gelu == encoder.sidecar.quick_gelu


def test_exports_of_texts_or_damaged_weights_are_not_read(tmp_path: Path, language_folders: dict[str, Path]) -> None:
    assert set(EXPORTED) == set(format_names()) - {"onnx", "onnx_int8", "vllm"}
    encoder = with_language_tower(_encoder(), str(language_folders["bert"]), "finetuned")
    write_checked(encoder, find_format("sentence_transformers"), tmp_path / "language")
    for name in ("graph", "broken", "other"):
        write_checked(_encoder(), find_format("huggingface"), tmp_path / name)
    weights = [tmp_path / name / "model.safetensors" for name in ("graph", "broken", "other")]
    weights[0].rename(tmp_path / "graph" / "text.onnx")
    weights[1].write_bytes(weights[1].read_bytes()[:5000])
    save_file({"logit_scale": torch.ones(())}, weights[2])
    only = "only the text tower: give .* --format open_clip or huggingface or sentence_transformers that holds both"
    refusals = {"language": only, "graph": only, "broken": "is a broken checkpoint", "other": "does not fit the model"}
    for name, words in refusals.items():
        with pytest.raises(InputError, match=words) as error:
            find_encoder(str(tmp_path / name))
        assert "\n" not in str(error.value)


def test_open_clip_prepares_images_as_timms_tower_wants_them(tmp_path: Path) -> None:
    config = _config(vision_cfg={"timm_model_name": "test_vit", "timm_pool": "", "image_size": 160})
    statistics = {"mean": (0.5, 0.4, 0.6), "std": (0.5, 0.3, 0.2)}
    encoder, folder = Encoder.create("small", "small", config, "test", statistics), tmp_path / "exported"
    write_checked(encoder, find_format("open_clip"), folder)
    images = _images(160)
    found = find_format("open_clip").read(folder, TEXTS, images).images
    assert found is not None
    np.testing.assert_allclose(found, encoder.embed_images([encoded(image) for image in images]), atol=1e-5)
    assert json.loads((folder / "open_clip_config.json").read_text())["preprocess_cfg"]["mean"] == [0.5, 0.4, 0.6]


def test_the_command_writes_a_folder_with_its_origin(tmp_path: Path) -> None:
    encoder, models, exported = _encoder(), tmp_path / "models" / "small", tmp_path / "exported"
    encoder.extra = {"basis": torch.ones(2, 2)}
    encoder.save(models)
    assert "differ by" in _run(str(models), str(exported), "huggingface")
    sidecar = json.loads((exported / "encoder.json").read_text())
    assert sidecar["weights_sha256"] == encoder.sidecar.weights_sha256
    assert encoder.sidecar.weights_sha256 in (exported / "README.md").read_text()
    assert (exported / "method.safetensors").is_file()


def test_exports_with_other_vectors_or_that_a_library_cannot_represent_are_not_written(
    tmp_path: Path, tiny_encoder: Any, language_folders: dict[str, Path]
) -> None:
    form = find_format("open_clip")

    def read(*arguments: Any) -> ExportedVectors:
        found = form.read(*arguments)
        return ExportedVectors(unit_rows(found.texts + 1e-3)[0], found.images)

    with pytest.raises(InputError, match="vectors differ by"):
        write_checked(_encoder(), replace(form, read=read), tmp_path / "exported")
    assert not list(tmp_path.iterdir())
    language = {"text_cfg": {"language_model": "all-MiniLM-L6-v2", "strategy": "frozen"}}
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("vllm", {}, "vectors of 16 numbers and a text tower 32 wide, which vLLM does not serve"),
        ("huggingface", {"vision_cfg": {"no_ln_pre": True}}, "vision_cfg.no_ln_pre is True"),
        ("huggingface", {"text_cfg": {"proj_bias": True}}, "text_cfg.proj_bias is True"),
        ("huggingface", {"text_cfg": {"pool_type": "last"}}, "text_cfg.pool_type is last"),
        ("huggingface", {"vision_cfg": {"layers": [1] * 4, "width": 8, "patch_size": None}}, "not a square vision"),
        ("huggingface", language, "adapted language model.*cliptune serve"),
        ("open_clip", language, "adapted language model.*cliptune serve"),
    ]
    for name, changes, words in refused:
        tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update={"architecture": _config(**changes)})
        with pytest.raises(InputError, match=words) as error:
            write_checked(tiny_encoder, find_format(name), tmp_path / "exported")
        assert "\n" not in str(error.value)
    for placement in ("layers", "residuals"):
        bert = str(language_folders["bert"])
        encoder = with_language_tower(_encoder(), bert, "bottleneck", adapter_placement=placement)
        with pytest.raises(InputError, match="adapters inside its language model"):
            write_checked(encoder, find_format("sentence_transformers"), tmp_path / "exported")
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "onnx_int8"])
@pytest.mark.parametrize("kind", ["clip", "bert", *FAMILIES])
def test_graphs_give_the_text_features(name: str, kind: str, tmp_path: Path, language_folders: dict[str, Path]) -> None:
    encoder, texts = _encoder(), [*TEXTS, "what [PAD] says [SEP]"]
    if kind in FAMILIES:
        write_folder(tmp_path / "published", json.dumps(FAMILIES[kind]))
        encoder = folder_encoder(f"local-dir:{tmp_path / 'published'}")
    elif kind == "bert":
        encoder = with_language_tower(encoder, str(language_folders[kind]), "bottleneck")
    summary = write_checked(encoder, find_format(name), tmp_path / "exported")
    found, expected = find_format(name).read(tmp_path / "exported", texts, []).texts, encoder.embed_texts(texts)
    if name != "onnx_int8":
        np.testing.assert_allclose(found, expected, atol=1e-5)
    else:
        assert "keep a median cosine of" in summary
        assert 0.98 < (found * expected).sum(axis=1).min() < 0.99999


def _run(encoder: str, output: str, format_name: str = "open_clip", code: int = 0) -> str:
    return cliptune("export", "--encoder", encoder, "--format", format_name, "--output", output, code=code)


def test_an_unwritable_output_is_named_before_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other refusals are tested in `tests/unit/cli/test_quick.py`."""
    monkeypatch.chdir(tmp_path)
    Path("models/mine").mkdir(parents=True)
    # The weights are missing: loading them would be another error.
    Path("models/mine", SIDECAR).write_text("{}")
    Path("taken").write_text("a file, not a folder")
    Path("closed").mkdir(mode=0o500)
    closed = [] if os.geteuid() == 0 else ["closed/exported"]
    for output in ("taken/exported", "taken/a/b", "/proc/exported", *closed):
        message = _run("mine", output, code=1)
        assert message.startswith(f"error: --output {output} cannot be written (")
        assert message.endswith("): name another place\n")
        assert message.count("\n") == 1
    formats = "choose one of huggingface, onnx, onnx_int8, open_clip, sentence_transformers, vllm"
    with pytest.raises(InputError, match=formats):
        find_format("tflite")


def test_the_loss_with_rounded_texts_is_reported(
    stub: Any,
    vectors: dict[str, Sequence[float]],
    folders: Folders,
    make_settings: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(export, "load_settings", make_settings)
    encoder = stub(vectors)
    assert (ao_loss(encoder, encoder.embed_texts, folders) or "").startswith("AO@2 58.3 becomes 58.3 (+0.0 [")
    # The paraphrase of d now retrieves the images of the paraphrase of a, and none of those of the query d.
    rounded = stub(vectors | {"d paraphrase": vectors["a paraphrase"]})
    assert (ao_loss(encoder, rounded.embed_texts, folders) or "").startswith("AO@2 58.3 becomes 25.0 (-33.3 [")
    assert ao_loss(encoder, encoder.embed_texts, replace(folders, evaluation=tmp_path / "none")) is None


def test_a_prefix_with_objects_is_not_exported_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export would replace some of them, and stand among the others."""
    listed: list[str] = []

    class Store:
        def __init__(self, attempts: int) -> None:
            assert attempts == 1

        def etags(self, url: str) -> dict[str, str]:
            listed.append(url)
            return {"s3://bucket/ours/model.bin": "1"} if "ours" in url else {}

    monkeypatch.setattr("components.core.pictures.storage.S3", Store)
    for url in ("s3://bucket/ours", "s3://bucket/ours/"):
        with pytest.raises(
            InputError, match=r"--output s3://bucket/ours.* has 1 objects, such as s3://bucket/ours/model"
        ):
            check_export("ViT-B-32-quickgelu:openai", "open_clip", url)
    check_export("ViT-B-32-quickgelu:openai", "open_clip", "s3://bucket/new")
    assert listed == ["s3://bucket/ours/", "s3://bucket/ours/", "s3://bucket/new/"]


def test_a_local_hugging_face_tower_is_exported_with_files(tmp_path: Path, language_folders: dict[str, Path]) -> None:
    named = tmp_path / "language"
    shutil.copytree(language_folders["bert"], named)
    text = {"hf_model_name": str(named), "hf_tokenizer_name": str(named), "context_length": 16}
    config = TINY | {"text_cfg": text | {"hf_proj_type": "mlp", "hf_pooler_type": "mean_pooler"}}
    encoder = Encoder.create("small", "small", config, "test")
    shutil.rmtree(named)
    encoder.save(tmp_path / "saved")
    write_checked(Encoder.load(tmp_path / "saved"), find_format("open_clip"), tmp_path / "out")
    loaded = folder_encoder(f"local-dir:{tmp_path / 'out'}", check_on="cpu")
    assert loaded.sidecar.parity is not None
    for other in (loaded, Encoder.load(tmp_path / "out")):
        np.testing.assert_allclose(other.embed_texts(TEXTS), encoder.embed_texts(TEXTS), atol=1e-6)
