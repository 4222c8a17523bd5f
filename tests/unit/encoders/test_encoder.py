"""Saved encoders come back as they were, and damaged ones are refused by name."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.encoders.encoder import Encoder
from components.errors import InputError


def test_round_trip_keeps_features_and_sidecar(tiny_encoder: Encoder, tmp_path: Path, png: Any) -> None:
    sidecar = tiny_encoder.save(tmp_path / "encoder")
    loaded = Encoder.load(tmp_path / "encoder")
    assert loaded.sidecar == sidecar
    texts = ["a dog", "a much longer text about two dogs"]
    np.testing.assert_array_equal(loaded.embed_texts(texts), tiny_encoder.embed_texts(texts))
    images = [png((250, 0, 0)), png((0, 0, 250))]
    np.testing.assert_array_equal(loaded.embed_images(images), tiny_encoder.embed_images(images))


def test_texts_come_back_in_the_order_given(tiny_encoder: Encoder) -> None:
    texts = ["a rather long text about a dog on a sofa", "x", "a dog"]
    together = tiny_encoder.embed_texts(texts, batch_size=2)
    alone = np.concatenate([tiny_encoder.embed_texts([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_image_tower_hash_ignores_the_text_tower(tiny_encoder: Encoder) -> None:
    before = tiny_encoder.image_tower_hash()
    tiny_encoder.model.positional_embedding.data += 1
    assert tiny_encoder.image_tower_hash() == before
    tiny_encoder.model.visual.proj.data += 1
    assert tiny_encoder.image_tower_hash() != before


def test_truncated_weights_are_named(tiny_encoder: Encoder, tmp_path: Path) -> None:
    tiny_encoder.save(tmp_path)
    weights = tmp_path / "encoder.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"encoder\.safetensors is a broken checkpoint"):
        Encoder.load(tmp_path)


def test_weights_that_the_sidecar_does_not_describe_are_refused(tiny_encoder: Encoder, tmp_path: Path) -> None:
    tiny_encoder.save(tmp_path)
    sidecar = json.loads((tmp_path / "encoder.json").read_text())
    (tmp_path / "encoder.json").write_text(json.dumps(sidecar | {"weights_sha256": "0" * 64}))
    with pytest.raises(InputError, match="is not the file that"):
        Encoder.load(tmp_path)


def test_other_activation_than_recorded_is_refused(tiny_encoder: Encoder, tmp_path: Path) -> None:
    tiny_encoder.save(tmp_path)
    sidecar = json.loads((tmp_path / "encoder.json").read_text())
    sidecar["architecture"]["quick_gelu"] = True
    (tmp_path / "encoder.json").write_text(json.dumps(sidecar))
    with pytest.raises(InputError, match="sidecar says GELU"):
        Encoder.load(tmp_path)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no encoder"):
        Encoder.load(tmp_path / "nowhere")


def test_undecodable_image_is_named(tiny_encoder: Encoder) -> None:
    with pytest.raises(InputError, match="image abc cannot be decoded"):
        tiny_encoder.embed_images([b"no image"], names=["abc"])


def test_pickled_weights_are_never_opened(tmp_path: Path, raw_params: dict[str, Any]) -> None:
    from components.encoders.base import run
    from components.settings import Settings

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "executed",))

    (tmp_path / "weights.pt").write_bytes(pickle.dumps(Payload()))
    raw_params["base"] |= {"source": "file", "file": str(tmp_path / "weights.pt")}
    with pytest.raises(InputError, match=r"only \.safetensors weights are loaded"):
        run(Settings.model_validate(raw_params), tmp_path / "base")
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "base").exists()
