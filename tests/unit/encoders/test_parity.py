"""Encoders compute what open_clip computes, for every architecture that it ships, at small size."""

from __future__ import annotations

import json
from collections import defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
from safetensors.torch import save_file
from transformers import BertConfig

from components.base.published import folder_encoder
from components.core.system.errors import InputError
from components.encoders.adapter.language_tower import embedded_model
from components.encoders.adapter.model_configs import CONFIG
from components.encoders.adapter.precision import Precision
from components.encoders.parity import Reference, measured_parity

_TEXTS = ["a dog", "Two cats sleep on a red sofa beside the window, and a third one watches them."]
_LEAST_COSINE: dict[Precision, float] = {"bf16": 0.999, "int8": 0.99}
_SIZES = {"width": 64, "heads": 2, "layers": 2}


def reduced(name: str) -> dict[str, Any]:
    """The configuration of an architecture with narrow layers; timm's test tower replaces its image towers."""
    config = deepcopy(open_clip.get_model_config(name))
    assert config is not None
    text, vision = config["text_cfg"], config["vision_cfg"]
    if "hf_model_name" in text:
        text |= {"hf_model_name": "tower", "hf_tokenizer_name": "tower"}
    else:
        text |= _SIZES
        if "hf_tokenizer_name" in text:
            text |= {"hf_tokenizer_name": "tower", "vocab_size": 30_522, "eos_id": 102}
    if "timm_model_name" in vision:
        vision |= {"timm_model_name": "test_vit", "timm_pool": "", "timm_proj": "linear", "image_size": 160}
    elif isinstance(vision["layers"], list):
        vision |= {"layers": [1, 1, 1, 1], "width": 16, "image_size": 64}
    else:
        vision |= {"layers": 1, "width": 64, "head_width": 32, "patch_size": 16, "image_size": 64}
        vision |= {"attn_pooler_heads": 2} if vision.get("attentional_pool") else {}
    if "multimodal_cfg" in config:
        config["multimodal_cfg"] |= {"width": 64, "heads": 2, "layers": 1}
    return config | {"embed_dim": 64}


def preparations(name: str) -> list[dict[str, Any]]:
    """The different preparations of an architecture's published weights."""
    keys = ("mean", "std", "interpolation", "resize_mode")
    tags = open_clip.list_pretrained_tags_by_model(name)
    facts = [open_clip.get_pretrained_cfg(name, tag) for tag in tags]
    found = [{key: fact[key] for key in keys if key in fact} for fact in facts]
    return [one for place, one in enumerate(found) if one not in found[:place]] or [{}]


def distinct() -> dict[str, list[str]]:
    """Content of `open_clip_config.json` -> the architectures that it reduces."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in open_clip.list_models():
        for preprocess in preparations(name):
            groups[json.dumps({"model_cfg": reduced(name), "preprocess_cfg": preprocess}, sort_keys=True)].append(name)
    return groups


def write_folder(folder: Path, content: str) -> None:
    """A folder as open_clip publishes them, with random weights, and a BERT tokenizer and tower where it needs one."""
    folder.mkdir()
    (folder / CONFIG).write_text(content)
    text = json.loads(content)["model_cfg"]["text_cfg"]
    if "hf_tokenizer_name" in text:
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
            (folder / name).write_bytes((embedded_model() / name).read_bytes())
    if "hf_model_name" in text:
        BertConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64).save_pretrained(
            folder
        )
    settings = json.loads(content)
    if "hf_model_name" in text:
        settings["model_cfg"]["text_cfg"]["hf_model_name"] = str(folder)
        (folder / CONFIG).write_text(json.dumps(settings))
    model = open_clip.create_model(f"local-dir:{folder}", pretrained_text=False)
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        folder / "open_clip_model.safetensors",
    )


def test_every_architecture_of_open_clip_has_the_features_that_open_clip_computes(tmp_path: Path) -> None:
    groups = distinct()
    assert {name for names in groups.values() for name in names} == set(open_clip.list_models())
    for number, (content, names) in enumerate(groups.items()):
        write_folder(tmp_path / str(number), content)
        encoder = folder_encoder(f"local-dir:{tmp_path / str(number)}", check=True)
        parity = encoder.sidecar.parity
        assert parity is not None
        assert max(parity.texts, parity.images) < 1e-5, names
        for precision, least in _LEAST_COSINE.items():
            rounded = deepcopy(encoder)
            rounded.compute_in(precision)
            first, second = rounded.embed_texts(_TEXTS), encoder.embed_texts(_TEXTS)
            assert (first * second).sum(axis=1).min() > least, (precision, names)
            assert not np.array_equal(first, second), (precision, names)


@pytest.mark.parametrize(
    "wrong", [{"resize_mode": "shortest"}, {"mean": [0.48, 0.46, 0.41]}, {"interpolation": "bicubic"}], ids=str
)
def test_a_wrong_preparation_stops_the_base(tmp_path: Path, wrong: dict[str, Any]) -> None:
    right = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear", "resize_mode": "squash"}
    content = {"model_cfg": reduced("PE-Core-S-16-384"), "preprocess_cfg": right}
    write_folder(tmp_path / "model", json.dumps(content))
    encoder = folder_encoder(f"local-dir:{tmp_path / 'model'}")
    reference = Reference.of(encoder, f"local-dir:{tmp_path / 'model'}")
    encoder.sidecar = encoder.sidecar.model_copy(update={"preparation": encoder.sidecar.preparation.changed(wrong)})
    with pytest.raises(InputError, match=r"e-0[0-9] for texts and .* for pictures, more than 1e-04"):
        measured_parity(encoder, reference)
