"""The base stage reads what params.yaml names and refuses what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.base.base import run
from components.base.published import check_published, warn_of_activation
from components.core.errors import InputError
from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from tests.conftest import TINY


def _settings(raw: dict[str, Any], **base: Any) -> Settings:
    raw["base"] |= base
    return Settings.model_validate(raw)


def test_encoder_folder_is_taken_as_it_is(tiny_encoder: Encoder, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    tiny_encoder.save(tmp_path / "given")
    run(_settings(raw_params, source="file", file=str(tmp_path / "given")), tmp_path / "base")
    loaded = Encoder.load(tmp_path / "base")
    assert loaded.sidecar.name == "base"
    np.testing.assert_array_equal(loaded.embed_texts(["a dog"]), tiny_encoder.embed_texts(["a dog"]))


def test_weights_of_another_model_are_refused(
    tiny_encoder: Encoder, tmp_path: Path, raw_params: dict[str, Any]
) -> None:
    tiny_encoder.save(tmp_path / "given")
    weights = tmp_path / "given" / "encoder.safetensors"
    with pytest.raises(InputError, match="does not fit the model"):
        run(_settings(raw_params, source="file", file=str(weights)), tmp_path / "base")


def test_activation_of_weights_and_config_must_agree(tmp_path: Path, raw_params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="'ViT-B-32-quickgelu'"):
        run(_settings(raw_params, source="open_clip", model="ViT-B-32", pretrained="openai"), tmp_path / "base")


def test_weights_that_papers_scored_with_the_other_activation_are_taken_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check_published("ViT-B-32-quickgelu", "laion400m_e32", quick_gelu=True)
    assert caplog.messages == []
    check_published("ViT-B-32", "laion400m_e32", quick_gelu=False)
    (message,) = caplog.messages
    assert "trained with another activation than 'ViT-B-32' has" in message
    assert "name 'ViT-B-32-quickgelu'" in message


def test_a_model_with_one_activation_needs_no_twin() -> None:
    check_published("roberta-ViT-B-32", "laion2b_s12b_b32k", quick_gelu=True)


def test_weights_for_differently_normalised_images_are_refused() -> None:
    with pytest.raises(InputError, match="expect images with mean"):
        check_published("ViT-L-14", "laion2b_s32b_b82k", quick_gelu=False)


def test_a_published_weights_file_becomes_a_safetensors_encoder(
    tiny_encoder: Encoder, tmp_path: Path, raw_params: dict[str, Any]
) -> None:
    torch.save({"state_dict": tiny_encoder.model.state_dict()}, tmp_path / "author.pt")
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    settings = _settings(raw_params, source="file", model=str(tmp_path / "tiny.json"), file=str(tmp_path / "author.pt"))
    run(settings, tmp_path / "base")
    loaded = Encoder.load(tmp_path / "base")
    assert loaded.sidecar.model == "tiny"
    assert loaded.sidecar.method == "file:author.pt"
    np.testing.assert_array_equal(loaded.embed_texts(["a dog"]), tiny_encoder.embed_texts(["a dog"]))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ViT-B-32", "gets GELU: name 'ViT-B-32-quickgelu' if it learned with QuickGELU"),
        ("ViT-B-32-quickgelu", "gets QuickGELU: name 'ViT-B-32' if it learned with GELU"),
        ("roberta-ViT-B-32", None),
    ],
)
def test_the_activation_that_a_file_gets_is_said(name: str, says: str | None, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_activation(name, Path("author.pt"))
    assert caplog.messages == ([f"author.pt does not say its activation and {says}"] if says else [])


def test_a_weights_file_comes_with_that_warning(
    tiny_encoder: Encoder, tmp_path: Path, raw_params: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ViT-B-32.json").write_text(json.dumps(TINY))
    torch.save(tiny_encoder.model.state_dict(), tmp_path / "author.pt")
    model, file = str(tmp_path / "ViT-B-32.json"), str(tmp_path / "author.pt")
    run(_settings(raw_params, source="file", model=model, file=file), tmp_path / "base")
    assert [message for message in caplog.messages if "does not say its activation" in message]


def test_unknown_model_and_tag_are_named(tmp_path: Path, raw_params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"params\.yaml: base: model 'ViT-Z' is unknown"):
        run(_settings(raw_params, source="open_clip", model="ViT-Z", pretrained="openai"), tmp_path / "base")
    with pytest.raises(InputError, match=r"params\.yaml: base: weights 'nonsense' of ViT-B-32 are unknown"):
        run(_settings(raw_params, source="open_clip", model="ViT-B-32", pretrained="nonsense"), tmp_path / "base")


def test_a_resnet_is_not_trained_from_nothing(raw_params: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'RN50' normalises by batch statistics.* take a vision transformer"):
        run(_settings(raw_params, source="scratch", model="RN50"), tmp_path / "base", tmp_path / "train.parquet")
