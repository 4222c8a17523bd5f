"""open_clip configurations of every supported kind become models; the others are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import timm
import torch

from components.core.system.errors import InputError
from components.encoders.adapter.architecture import build, image_tower
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from tests.conftest import TINY

VISION = TINY["vision_cfg"]


def _roberta_base(folder: Path) -> dict[str, Any]:
    """The published roberta-ViT-B-32, made tiny."""
    published = open_clip.get_model_config("roberta-ViT-B-32")
    files = {"hf_model_name": str(folder), "hf_tokenizer_name": str(folder), "context_length": 24}
    return {
        **published,
        "embed_dim": 16,
        "vision_cfg": VISION,
        "text_cfg": {**published["text_cfg"], **files},
    }


def test_a_roberta_base_has_no_dropout_and_is_loaded_without_its_source(
    language_folders: dict[str, Path], tmp_path: Path
) -> None:
    texts = ["a dog", "two small hats on the long sofa"]
    encoder = Encoder.create("base", "roberta", _roberta_base(language_folders["roberta"]), "test")
    assert encoder.sidecar.quick_gelu
    sidecar = encoder.save(tmp_path)
    assert str(language_folders["roberta"]) not in (tmp_path / "encoder.json").read_text()
    loaded = Encoder.load(tmp_path)
    assert loaded.sidecar == sidecar
    np.testing.assert_array_equal(loaded.embed_texts(texts), encoder.embed_texts(texts))
    encoder.model.train()
    tokens = torch.from_numpy(encoder.tokenizer(texts).astype("int64"))
    assert torch.equal(encoder.model.encode_text(tokens), encoder.model.encode_text(tokens))


def test_a_model_file_may_name_a_folder_next_to_it_and_a_broken_one_is_named(language_folders: dict[str, Path]) -> None:
    folder = language_folders["roberta"]
    config = _roberta_base(folder)
    config["text_cfg"] |= {"hf_model_name": folder.name, "hf_tokenizer_name": folder.name}
    path = folder.parent / "small-roberta.json"
    path.write_text(json.dumps(config))
    read = model_config(str(path))
    assert read["text_cfg"]["hf_model_name"] == str(folder)
    assert isinstance(build(read), open_clip.CustomTextCLIP)
    path.write_text("{}")
    with pytest.raises(InputError, match=r"small-roberta\.json is not an open_clip configuration"):
        model_config(str(path))


def test_models_that_cannot_be_trained_here_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    text = TINY["text_cfg"]
    for config, refusal in (
        ({**TINY, "text_cfg": text | {"hedas": 2}}, r"open_clip does not know this configuration \(.*'hedas'\): corr"),
        (_roberta_base(Path("someone/roberta")), r"'someone/roberta'.*hf_model_name"),
    ):
        with pytest.raises(InputError, match=refusal):
            build(config)


@pytest.mark.parametrize(("name", "mean"), [("vit-b-32-imagenet", 0.5), ("rn50-imagenet", 0.485)])
def test_models_with_towers_of_timms_are_what_it_publishes_for_imagenet(name: str, mean: float) -> None:
    vision = model_config(name)["vision_cfg"]
    published = timm.get_pretrained_cfg(vision["timm_model_name"])
    assert (published.num_classes, published.mean[0]) == (1000, mean)
    assert published.input_size == (3, vision["image_size"], vision["image_size"])


def test_an_image_tower_has_the_shapes_of_a_whole_models(tiny_encoder: Encoder) -> None:
    tower = image_tower(tiny_encoder.sidecar.architecture).state_dict()
    whole = tiny_encoder.model.visual.state_dict()
    assert {name: weights.shape for name, weights in tower.items()} == {n: w.shape for n, w in whole.items()}
    assert not torch.equal(tower["proj"], whole["proj"])
