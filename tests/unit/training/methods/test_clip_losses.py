"""Methods whose loss is CLIP's: on columns of their own, on differences of images, and with hard negatives."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import BertConfig, M2M100Config, MT5Config, XLMRobertaConfig

from components.core.system.errors import InputError
from components.encoders.adapter.architecture import build
from components.encoders.adapter.encoder import Encoder
from components.training.methods.conclip import METHOD as CONCLIP
from components.training.methods.contract.losses import Sigmoid
from components.training.methods.contract.method import Neighbours
from components.training.methods.laclip_ft import METHOD as LACLIP
from components.training.methods.negation_clip import METHOD as NEGATION_CLIP
from components.training.methods.omni_negclip import METHOD as OMNI_NEGCLIP
from components.training.methods.pc_clip import METHOD as PC_CLIP
from components.training.methods.registry import find_method
from tests.conftest import TINY
from tests.unit.training.methods.examples import (
    SCALE,
    as_features,
    columns_of,
    configured,
    extra_of,
    losses_of,
    picking,
    random_columns,
    small_encoder,
    unit,
)


def test_every_text_is_as_likely_and_the_last_layer_norm_frozen() -> None:
    method = LACLIP.read({"rewrites": ["rewrite", "paraphrase_1", "paraphrase_2"]})
    (drawn,) = method.columns - {"image"}
    texts = ("caption", "rewrite", "paraphrase_1", "paraphrase_2")
    assert method.column_mixture == {drawn: dict.fromkeys(texts, 0.25)}
    torch.manual_seed(0)
    model = Encoder.create("base", "tiny", TINY, "test").model
    trained = set(NEGATION_CLIP.read({}).freeze(model))
    every = {name for name, _ in model.named_parameters()}
    assert {"ln_final.weight", "ln_final.bias"} <= every
    assert every - trained == {"ln_final.weight", "ln_final.bias"} | {name for name in every if "visual." in name}
    assert {"logit_scale", "text_projection", "token_embedding.weight"} <= trained


def test_columns_are_contrasted() -> None:
    for method, first, second, settings, scale in [
        ("lm_text_tower", "image", "caption", {}, SCALE),
        ("clip_scratch", "image", "caption", {}, SCALE),
        ("laclip_ft", "image", "drawn_caption", {}, SCALE),
        ("negation_clip", "image", "absence", {}, SCALE),
        ("caption_ft", "image", "caption", {"temperature": 1.0}, 1.0),
        ("caption_ft", "image", "rewrite", {"column": "rewrite", "temperature": 0.1}, 10.0),
        ("caption_ft", "image", "rewrite", {"column": "rewrite", "temperature": None}, SCALE),
        ("paraclip", "image", "caption", {"terms": ["l1"]}, SCALE),
        ("paraclip", "image", "paraphrase_1", {"terms": ["l1_prime"]}, SCALE),
        ("paraclip", "image", "paraphrase_2", {"terms": ["l1_second"]}, SCALE),
        ("paraclip", "caption", "paraphrase_1", {"terms": ["l2"]}, SCALE),
        ("paraclip", "paraphrase_1", "paraphrase_2", {"terms": ["l3"]}, SCALE),
    ]:
        columns = random_columns((first, second))
        rows, others = unit(columns[first]), unit(columns[second])
        expected = (picking(rows, others, scale=scale) + picking(others, rows, scale=scale)) / 2
        (term,) = settings.get("terms", ["infonce"])
        assert losses_of({"method": method} | settings, columns) == pytest.approx({term: expected})
        assert find_method(method).read(settings).columns == {first, second}


@pytest.mark.parametrize("method", ["caption_ft", "pc_clip"])
@pytest.mark.parametrize("scope", ["blocks", "tower"])
def test_the_scope_decides_whether_the_token_embeddings_train(method: str, scope: str, tiny_encoder: Encoder) -> None:
    trained = find_method(method).read({"scope": scope}).freeze(tiny_encoder.model)
    assert any(name.startswith("transformer.") for name in trained)
    assert ("token_embedding.weight" in trained) == (scope == "tower")
    assert "logit_scale" not in trained


_SMALL = {"vocab_size": 32, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
_HF_TOWERS: list[tuple[Any, str]] = [
    (BertConfig(**_SMALL, intermediate_size=16), r"encoder\.layer\.\d"),
    (XLMRobertaConfig(**_SMALL, intermediate_size=16), r"encoder\.layer\.\d"),
    (MT5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2), r"block\.\d"),
    (
        M2M100Config(vocab_size=32, d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=16),
        r"layers\.\d",
    ),
]


@pytest.mark.parametrize(("tower", "blocks"), _HF_TOWERS, ids=[type(tower).__name__ for tower, _ in _HF_TOWERS])
def test_blocks_of_a_hugging_face_tower_are_without_its_embeddings(tower: Any, blocks: str, tmp_path: Path) -> None:
    tower.save_pretrained(tmp_path)
    text = {"hf_model_name": str(tmp_path), "hf_proj_type": "linear", "hf_pooler_type": "mean_pooler"}
    model = build(TINY | {"text_cfg": text})
    own = {name for name, _ in model.text.named_parameters(prefix="text") if re.search(blocks, name)}
    assert own
    for method in ("caption_ft", "pc_clip", "joint"):
        parts = {"parts": {"pc_clip": {}}} if method == "joint" else {}
        found = find_method(method).read({"learn_logit_scale": False} | parts)
        assert set(found.freeze(model)) == own, method


@pytest.mark.parametrize(
    ("method", "given", "of_texts"),
    [
        ("caption_ft", {}, {"infonce": 1.0}),
        ("caption_ft", {"temperature": None}, {}),
        ("pc_clip", {}, {"infonce": 1.0}),
        ("paraclip", {}, {"l2": 0.07, "l3": 0.07}),
        ("read_clip", {}, {"alignment": 0.07}),
        ("joint", {}, {"pc_clip/infonce": 1.0, "paraclip/l2": 0.07, "paraclip/l3": 0.07}),
    ],
)
def test_a_logit_bias_is_of_images_alone(method: str, given: dict[str, Any], of_texts: dict[str, float]) -> None:
    """With a bias of -10 and a scale of 1, negatives have no gradient; with one of 100, unrelated texts have all."""
    found = configured({"method": method} | given)
    features = as_features(random_columns(columns_of(found)), extra_of(found))

    def losses(scale: Any) -> dict[str, float]:
        return {name: loss.item() for name, loss in found.losses(replace(features, scale=scale)).items()}

    sigmoid = losses(Sigmoid(torch.tensor(SCALE), torch.tensor(-10.0)))
    plain = losses(torch.tensor(SCALE))
    for name in plain:
        if name in of_texts:
            assert sigmoid[name] == pytest.approx(losses(torch.tensor(1 / of_texts[name]))[name], rel=1e-5), name
        elif name not in {"reconstruction", "semclip/paraphrase", "semclip/negation"}:
            assert sigmoid[name] != pytest.approx(plain[name]), name


_NO_NEGATIVES = "one row has no negatives: set it to 2"


PC_CLIP_COLUMNS = random_columns(("image", "other_image", "difference"))
DIRECTION = unit(unit(PC_CLIP_COLUMNS["image"]) - unit(PC_CLIP_COLUMNS["other_image"]))
TEXT = unit(PC_CLIP_COLUMNS["difference"])


def _loss(**given: Any) -> float:
    (value,) = losses_of({"method": "pc_clip", **given}, PC_CLIP_COLUMNS).values()
    return value


@pytest.mark.parametrize(("temperature", "scale"), [(1.0, 1.0), (0.5, 2.0), (None, SCALE)])
def test_pc_clips_infonce_is_equation_4(temperature: float | None, scale: float) -> None:
    expected = (picking(TEXT, DIRECTION, scale=scale) + picking(DIRECTION, TEXT, scale=scale)) / 2
    assert _loss(temperature=temperature) == pytest.approx(expected)


@pytest.mark.parametrize(("protocol", "expected"), [("paper", 1 + 9), ("released", (1 + 9) / (2 * 2))])
def test_pc_clips_mse_is_of_squared_distances_to_differences_of_any_length(protocol: str, expected: float) -> None:
    # Unit images differ by (1, -1) and by (0, 2), unit texts are (1, 0) and (0, -1): (0, 1) and (0, -3) are between.
    columns = {"image": [[4, 0], [0, 3]], "other_image": [[0, 2], [0, -1]], "difference": [[7, 0], [0, -5]]}
    found = losses_of({"method": "pc_clip", "loss": "mse", "protocol": protocol}, columns)
    assert found == pytest.approx({"mse": expected})


def test_antisymmetric_differences_are_negatives_and_pull_to_the_right_side() -> None:
    expected = (picking(TEXT, DIRECTION, -DIRECTION, scale=1) + picking(DIRECTION, TEXT, scale=1)) / 2
    assert _loss(antisymmetric=True) == pytest.approx(expected)
    image, other, text = (torch.tensor([row], dtype=torch.float64) for row in ([1.0, 0.0], [0.0, 1.0], [0.0, 1.0]))
    text.requires_grad_()
    features = as_features({"image": image, "other_image": other, "difference": text})
    (loss,) = PC_CLIP.read({"antisymmetric": True}).losses(features).values()
    loss.backward()
    assert text.grad is not None
    assert text.grad @ torch.tensor([1.0, -1.0], dtype=torch.float64) < 0
    (plain,) = PC_CLIP.read({}).losses(features).values()
    assert plain == 0


def _halves(image: Any, caption: Any, **negatives: Any) -> dict[str, float]:
    """CLIP's loss with negatives of the images, by direction."""
    found = picking(image, caption, *negatives.values())
    return {"image_to_text": found / 2, "text_to_image": picking(caption, image) / 2}


def _negclip(**rows: Any) -> dict[str, float]:
    columns = ("image", "caption", "hard_negative")
    return _halves(**{name: np.concatenate([rows.pop(name), rows.pop(f"neighbour_{name}")]) for name in columns})


def _cs_clip(image: Any, caption: Any, hard_negative: Any, unit: Any, unit_foil: Any) -> dict[str, float]:
    logits = SCALE * np.concatenate([image @ unit.T, (image * unit_foil).sum(axis=1, keepdims=True)], axis=1)
    own = float(np.mean(np.log(np.exp(logits).sum(axis=1)) - np.diagonal(logits)))
    of_units = {"image_to_unit": own / 4, "unit_to_image": picking(unit, image) / 4}
    return _halves(image, caption, hard=hard_negative) | of_units


def _conclip(image: Any, caption: Any, negated_term: Any, neighbour_image: Any) -> dict[str, float]:
    return {
        "image_to_text": picking(image, caption, negated_term) / 3,
        "text_to_image": picking(caption, image, neighbour_image) / 3,
        "distractor_to_text": picking(neighbour_image, negated_term, caption) / 3,
    }


def _omni_negclip(image: Any, caption: Any, negated_term: Any, absence: Any) -> dict[str, float]:
    right, wrong = (SCALE * (image * texts).sum(axis=1) for texts in (caption, negated_term))
    chosen = np.log1p(np.exp(wrong - right)).mean()
    return {
        "presence": (picking(image, caption, negated_term) + picking(caption, image) + chosen) / 3,
        "absence": picking(image, absence) + picking(absence, image),
        "caption": 0.5 * (picking(image, caption) + picking(caption, image)),
        "margin": 6 * np.maximum((caption * absence).sum(axis=1) + 0.3, 0).mean(),
    }


OMNI = {"method": "omni_negclip", "absence_weight": 2, "caption_weight": 0.5, "margin_weight": 3, "margin": 0.3}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (OMNI, _omni_negclip),
        ({"method": "negclip"}, _negclip),
        ({"method": "negclip", "hard_images": False}, _halves),
        ({"method": "cs_clip"}, _cs_clip),
        ({"method": "conclip"}, _conclip),
        ({"method": "conclip", "distractors": False}, _halves),
    ],
    ids=["omni_negclip", "negclip", "negclip without hard images", "cs_clip", "conclip", "conclip without distractors"],
)
def test_hard_negatives_are_candidates(entry: dict[str, Any], expected: Callable[..., dict[str, float]]) -> None:
    """The columns that a method reads are the arguments of its closed form."""
    columns = random_columns(configured(entry).columns)
    rows = {name.replace(".", "_"): unit(values) for name, values in columns.items()}
    assert losses_of(entry, columns) == pytest.approx(expected(**rows))


def test_similar_images_are_the_nearest_and_contradictions_refused() -> None:
    for given, neighbours in [
        ({}, Neighbours(3, None)),
        ({"protocol": "released"}, Neighbours(1, None)),
        ({"protocol": "released", "distractor_data": "coco/data"}, Neighbours(1, Path("coco/data"))),
        ({"distractor_data": "coco/data"}, Neighbours(3, Path("coco/data"))),
    ]:
        method = CONCLIP.read(given)
        assert method.neighbours == neighbours
        assert method.files() == ({"distractors": Path("coco/data/embeddings")} if neighbours.data else {})
    for method, given, message in [
        ("paraclip", {"batch_size": 1}, _NO_NEGATIVES),
        ("joint", {"batch_size": 1}, _NO_NEGATIVES),
        ("pc_clip", {"batch_size": 1}, _NO_NEGATIVES),
        ("pc_clip", {"batch_size": 1, "loss": "mse"}, None),
        ("leaf", {"batch_size": 1}, None),
        ("semclip", {"batch_size": 1, "contrastive_weight": 0.0}, None),
        ("query_adapter", {"batch_size": 1}, None),
        ("query_adapter", {"batch_size": 1, "contrast": 1.0}, _NO_NEGATIVES),
        ("caption_ft", {"learn_logit_scale": True}, "only with temperature: null"),
        ("caption_ft", {"learn_logit_scale": True, "temperature": None}, None),
        ("pc_clip", {"loss": "mse", "antisymmetric": True}, "has no negatives"),
        ("pc_clip", {"learn_logit_scale": True}, "only with loss: infonce, temperature: null"),
        ("pc_clip", {"learn_logit_scale": True, "loss": "mse", "temperature": None}, "only with loss: infonce"),
        ("pc_clip", {"temperature": 0}, r"methods\.mine\.temperature"),
        ("conclip", {"distractors": False, "protocol": "released"}, "drop protocol and distractor_data"),
        ("conclip", {"distractors": False, "distractor_data": "a"}, "conclip has distractors: false: drop protocol"),
        ("semclip", {"n": 7}, "n is 7, the encoder has 6 dimensions: lower n"),
        ("semclip", {f"{term}_weight": 0 for term in ("contrastive", "paraphrase", "negation")}, "no term left"),
        ("semclip", {"protocol": "soft_sign"}, "soft_sign is for one direction, not 2: set n: 1"),
    ]:
        with nullcontext() if message is None else pytest.raises(InputError, match=message):
            find_method(method).read(given, "mine").extra(small_encoder())


def test_with_a_logit_bias_omni_negclip_judges_each_pair_alone() -> None:
    sigmoid = Sigmoid(torch.tensor(SCALE), torch.tensor(-2.0))
    columns = random_columns(("image", "caption", "negated_term", "absence"))
    found = OMNI_NEGCLIP.read({}).losses(replace(as_features(columns), scale=sigmoid))["presence"].item()
    image, *texts = (torch.from_numpy(unit(columns[name])) for name in ("image", "caption", "negated_term"))
    logits = SCALE * image @ torch.cat(texts).T - 2
    matches = torch.eye(8, 16, dtype=torch.float64)
    each = F.binary_cross_entropy_with_logits(logits, matches, reduction="none")
    own = each.diagonal().sum() + each.diagonal(8).sum()
    assert found == pytest.approx(((each.sum() + each[:, :8].sum() + own) / 8 / 3).item())


@pytest.mark.parametrize("custom", [False, True])
def test_omni_negclips_first_blocks_train_and_the_last_do_not(custom: bool) -> None:
    text = TINY["text_cfg"] | {"layers": 12}
    model = Encoder.create("base", "tiny", TINY | {"text_cfg": text, "custom_text": custom}, "clip").model
    trained = OMNI_NEGCLIP.read({"front_blocks": 2}).freeze(model)
    start = "text." if custom else ""
    frozen = {name for name, _ in model.named_parameters() if name not in trained and not name.startswith("visual.")}
    blocks = {name.removeprefix(f"{start}transformer.resblocks.").partition(".")[0] for name in frozen}
    assert blocks == {str(number) for number in range(2, 12)}
    others = {f"{start}{name}" for name in ("token_embedding.weight", "positional_embedding", "text_projection")}
    assert others | {f"{start}ln_final.weight", "logit_scale"} <= set(trained)
    assert not any(name.startswith("visual.") for name in trained)
