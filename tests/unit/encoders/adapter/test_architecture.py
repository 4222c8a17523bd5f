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
from components.encoders.adapter.architecture import build, image_tower, model_config
from components.encoders.adapter.encoder import Encoder
from tests.conftest import TINY

VISION = {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}


def _roberta_base(folder: Path) -> dict[str, Any]:
    """The published roberta-ViT-B-32, made tiny."""
    published = open_clip.get_model_config("roberta-ViT-B-32")
    files = {"hf_model_name": str(folder), "hf_tokenizer_name": str(folder), "context_length": 24}
    return {**published, "embed_dim": 16, "vision_cfg": VISION, "text_cfg": {**published["text_cfg"], **files}}


def test_a_roberta_base_survives_saving_without_its_source(language_folders: dict[str, Path], tmp_path: Path) -> None:
    texts = ["a dog", "two small hats on the long sofa"]
    encoder = Encoder.create("base", "roberta", _roberta_base(language_folders["roberta"]), "test")
    assert encoder.sidecar.quick_gelu
    sidecar = encoder.save(tmp_path / "encoder")
    assert str(language_folders["roberta"]) not in (tmp_path / "encoder" / "encoder.json").read_text()
    loaded = Encoder.load(tmp_path / "encoder")
    assert loaded.sidecar == sidecar
    np.testing.assert_array_equal(loaded.embed_texts(texts), encoder.embed_texts(texts))


def test_a_roberta_base_has_no_dropout(language_folders: dict[str, Path]) -> None:
    encoder = Encoder.create("base", "roberta", _roberta_base(language_folders["roberta"]), "test")
    encoder.model.train()
    tokens = torch.from_numpy(encoder.tokenizer(["a dog on the sofa"]).astype("int64"))
    assert torch.equal(encoder.model.encode_text(tokens), encoder.model.encode_text(tokens))


def test_a_model_file_may_name_a_folder_beside_it(language_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = language_folders["roberta"]
    config = _roberta_base(folder)
    config["text_cfg"] |= {"hf_model_name": folder.name, "hf_tokenizer_name": folder.name}
    path = folder.parent / "small-roberta.json"
    path.write_text(json.dumps(config))
    read = model_config(str(path))
    assert read["text_cfg"]["hf_model_name"] == str(folder)
    assert isinstance(build(read), open_clip.CustomTextCLIP)


def test_a_broken_model_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(InputError, match=r"model\.json is not an open_clip configuration"):
        model_config(str(tmp_path / "model.json"))


def test_a_language_model_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"'someone/roberta'.*hf_model_name"):
        build(_roberta_base(Path("someone/roberta")))


def test_models_that_cannot_be_trained_here_are_refused() -> None:
    with pytest.raises(InputError, match="CoCa"):
        build(model_config("coca_ViT-B-32"))
    with pytest.raises(InputError, match="reads padding"):
        build(model_config("ViT-B-16-SigLIP"))
    with pytest.raises(InputError, match="pools the last position"):
        build({"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TINY["text_cfg"] | {"pool_type": "last"}})
    with pytest.raises(InputError, match=r"text_cfg\.embed_cls"):
        build({**TINY, "text_cfg": TINY["text_cfg"] | {"embed_cls": True}})
    with pytest.raises(InputError, match=r"open_clip does not know this configuration \(.*'hedas'\): correct"):
        build({**TINY, "text_cfg": TINY["text_cfg"] | {"hedas": 2}})
    with pytest.raises(InputError, match="only for timm's image towers"):
        build({**TINY, "vision_cfg": VISION | {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}})


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
