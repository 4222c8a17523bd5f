"""Encoders compute what open_clip computes, for every architecture that it ships, at small size."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest

from components.core.system.errors import InputError
from components.encoders.adapter.precision import Precision
from components.encoders.adapter.tokens import tokenizer_of
from components.encoders.parity import Reference, measured_parity
from components.training.base.published import folder_encoder
from tests.support.open_clip_folders import FAMILIES, write_folder

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
        if "SigLIP2" in text.get("hf_tokenizer_name", ""):
            text |= {"vocab_size": 512}
        elif "hf_tokenizer_name" in text:
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


def test_every_architecture_of_open_clip_has_the_features_that_open_clip_computes(tmp_path: Path) -> None:
    groups = distinct()
    assert {name for names in groups.values() for name in names} == set(open_clip.list_models())
    for number, (content, names) in enumerate(groups.items()):
        write_folder(tmp_path / str(number), content)
        encoder = folder_encoder(f"local-dir:{tmp_path / str(number)}", check_on="cpu")
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
    ("family", "wrong"),
    [
        ("SigLIP 2", {"mean": [0.48, 0.46, 0.41]}),
        ("SigLIP 2", {"std": [0.27, 0.26, 0.28]}),
        ("SigLIP 2", {"resize_mode": "shortest"}),
        ("SigLIP 2", {"resize_mode": "longest"}),
        ("SigLIP 2", {"interpolation": "bilinear"}),
        ("MobileCLIP 2", {"resize_mode": "squash"}),
        ("MobileCLIP 2", {"interpolation": "bicubic"}),
        ("MobileCLIP 2", {"size": 96}),
        ("SigLIP 2", {"tokenizer": {"tokenizer_kwargs": {}}}),
        ("SigLIP 2", {"tokenizer": {"pool_type": "argmax", "no_causal_mask": False}}),
        ("CoCa", {"tokenizer": {"tokenizer_kwargs": {"clean": "canonicalize"}}}),
    ],
    ids=str,
)
def test_a_wrong_preparation_or_tokenizer_stops_the_base(tmp_path: Path, family: str, wrong: dict[str, Any]) -> None:
    name = f"local-dir:{tmp_path / 'model'}"
    write_folder(tmp_path / "model", json.dumps(FAMILIES[family]))
    encoder = folder_encoder(name)
    reference = Reference.of(name, name)
    assert measured_parity(encoder, reference).images < 1e-5
    if other := wrong.get("tokenizer"):
        text = FAMILIES[family]["model_cfg"]["text_cfg"] | other
        source = tmp_path / "model" if "hf_tokenizer_name" in text else None
        encoder.tokenizer = tokenizer_of({"text_cfg": text}, source)
    else:
        encoder.sidecar = encoder.sidecar.model_copy(update={"preparation": encoder.sidecar.preparation.changed(wrong)})
    with pytest.raises(
        InputError, match=r"for texts and .* for pictures, more than 1e-04: nothing was written"
    ) as refusal:
        measured_parity(encoder, reference)
    texts, pictures = (
        float(number) for number in re.findall(r"by (\S+) for texts and (\S+) for", str(refusal.value))[0]
    )
    assert (texts > 1e-4, pictures > 1e-4) == ("tokenizer" in wrong, "tokenizer" not in wrong)
