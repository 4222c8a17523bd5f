"""SemCLIP's projections and its three terms; joint adds other methods' losses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.training.methods.contract.method import TEXT_BLOCKS, TEXT_TOWER, Neighbours
from components.training.methods.joint import METHOD as JOINT
from components.training.methods.semclip import METHOD, projection
from tests.unit.training.methods.examples import (
    DIM,
    SCALE,
    as_features,
    configured,
    extra_of,
    losses_of,
    picking,
    random_columns,
    small_encoder,
    unit,
)

COLUMNS = random_columns(("image", "caption", "semclip_paraphrase", "paraphrase_1", "paraphrase_2", "negation"))
ONLY = {"contrastive_weight": 0, "paraphrase_weight": 0, "negation_weight": 0}


def _projected(column: str, **settings: Any) -> np.ndarray:
    directions = METHOD.read(settings).extra(small_encoder()).directions
    return np.asarray(unit(COLUMNS[column]) @ directions.double().numpy().T)


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.asarray((unit(one) * unit(other)).sum(axis=1))


@given(n=st.integers(1, 5), dim=st.integers(6, 20), seed=st.integers(0, 99))
def test_directions_are_gaussian_vectors_after_gram_schmidt(n: int, dim: int, seed: int) -> None:
    found = projection(dim, METHOD.read({"n": n, "basis_seed": seed}).settings).directions.double().numpy()
    drawn = torch.empty(n, dim).normal_(generator=torch.Generator().manual_seed(seed)).double().numpy()
    expected: list[np.ndarray] = []
    for vector in drawn:
        left = vector - sum((vector @ one) * one for one in expected)
        expected.append(left / np.linalg.norm(left))
    assert np.allclose(found @ found.T, np.eye(n), atol=1e-5)
    assert np.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("learnable", [False, True])
def test_directions_follow_from_their_seed_and_train_only_when_learnable(learnable: bool) -> None:
    extra = METHOD.read({"learnable": learnable}).extra(small_encoder())
    assert "directions" in extra.state_dict()
    assert [name for name, _ in extra.named_parameters()] == (["directions"] if learnable else [])
    assert torch.equal(extra.directions, METHOD.read({}).extra(small_encoder()).directions)
    assert not torch.equal(extra.directions, METHOD.read({"basis_seed": 1}).extra(small_encoder()).directions)


def test_the_contrastive_term_is_equation_4_and_weights_are_equation_7() -> None:
    entry = {"method": "semclip", **ONLY, "contrastive_weight": 3}
    for protocol, rows, scale in (("paper", unit, SCALE), ("released", np.asarray, 1 / 0.07)):
        image, caption = rows(COLUMNS["image"]), rows(COLUMNS["caption"])
        expected = (picking(image, caption, scale=scale) + picking(caption, image, scale=scale)) / 2
        found = losses_of(entry | {"protocol": protocol}, COLUMNS)
        assert found == pytest.approx({"contrastive": expected}, rel=1e-6)
    extra = METHOD.read({"protocol": "released"}).extra(small_encoder())
    assert [name for name, _ in extra.named_parameters()] == ["log_scale"]
    assert extra.log_scale.item() == pytest.approx(math.log(1 / 0.07))
    weights = {"contrastive": 1.0, "paraphrase": 2.0, "negation": 5.0}
    single = {name: losses_of({"method": "semclip", **ONLY, f"{name}_weight": 1}, COLUMNS)[name] for name in weights}
    found = losses_of({"method": "semclip", **{f"{name}_weight": w for name, w in weights.items()}}, COLUMNS)
    assert found == pytest.approx({name: weight / 8 * single[name] for name, weight in weights.items()})


@pytest.mark.parametrize("column", ["semclip_paraphrase", "paraphrase_1", "paraphrase_2"])
def test_paraphrase_term_is_equation_5(column: str) -> None:
    expected = (1 - _cosines(_projected("caption"), _projected(column))).mean()
    found = losses_of({"method": "semclip", **ONLY, "paraphrase_weight": 1, "paraphrase": column}, COLUMNS)
    assert found == pytest.approx({"paraphrase": expected})


@pytest.mark.parametrize("n", [2, 3])
def test_negation_term_is_equation_6(n: int) -> None:
    cosines = _cosines(_projected("caption", n=n), _projected("negation", n=n))
    assert (cosines < 0).any()
    assert (cosines > 0).any()
    found = losses_of({"method": "semclip", **ONLY, "negation_weight": 1, "n": n}, COLUMNS)
    assert found == pytest.approx({"negation": np.maximum(cosines, 0).mean()})


def test_an_epoch_visits_rows_and_terms_of_weight_zero_need_no_column() -> None:
    columns = {"contrastive": {"image"}, "paraphrase": {"semclip_paraphrase"}, "negation": {"negation"}}
    for absent in (["negation"], ["paraphrase"], ["paraphrase", "negation"], ["contrastive"]):
        given = {f"{term}_weight": 0 for term in absent}
        needed = {"caption"}.union(*(columns[term] for term in columns.keys() - set(absent)))
        method = METHOD.read(given)
        assert (method.columns, method.rows) == (needed, frozenset())
        losses_of({"method": "semclip", **given}, random_columns(needed))
    published = {"paraphrase": "published_paraphrase", "negation": "published_negation"}
    whole, negations = (METHOD.read(published | weights) for weights in ({}, {"paraphrase_weight": 0}))
    assert whole.columns == {"image", "caption", "published_paraphrase", "published_negation"}
    assert whole.epoch_unit == negations.epoch_unit == "rows"
    assert METHOD.read({}).epoch_unit == "pairs"


def test_the_encoders_scale_is_learned_only_where_it_is_used_and_released_decays_everything() -> None:
    plain, released = METHOD.read({}).settings, METHOD.read({"protocol": "released"}).settings
    assert (plain.learn_logit_scale, plain.decay_all) == (True, False)
    assert (released.learn_logit_scale, released.decay_all) == (False, True)
    assert not METHOD.read({"contrastive_weight": 0}).settings.learn_logit_scale


def _row(*start: float) -> Tensor:
    return torch.tensor([[*start, *[0.0] * (DIM - len(start))]], dtype=torch.float64)


@pytest.mark.parametrize("protocol", ["paper", "released"])
def test_one_direction_has_a_warning(protocol: str) -> None:
    settings = {"n": 1, "protocol": protocol}
    (warning,) = METHOD.read(settings).warnings()
    assert "have no gradient: set n: 2" in warning
    assert METHOD.read({**settings, "paraphrase_weight": 0, "negation_weight": 0}).warnings() == []
    assert METHOD.read({"n": 1, "protocol": "soft_sign", "normalised": False}).warnings() == []
    (warning,) = METHOD.read({"normalised": False}).warnings()
    assert warning == "semclip's normalised: false changes nothing: a cosine does not depend on lengths"


def test_one_direction_and_learnt_lengths_are_by_hand() -> None:
    one, other = _projected("caption", n=1), _projected("semclip_paraphrase", n=1)
    soft = np.tanh(math.sqrt(DIM) * one) * np.tanh(math.sqrt(DIM) * other)
    entry = {"method": "semclip", **ONLY, "paraphrase_weight": 1, "n": 1, "protocol": "soft_sign"}
    assert losses_of(entry, COLUMNS) == pytest.approx({"paraphrase": (1 - soft).mean()})
    assert losses_of({**entry, "normalised": False}, COLUMNS) == pytest.approx({"paraphrase": (1 - one * other).mean()})
    for protocol, cosine in [
        # Directions (3, 0) and (0, 4) turn (0.6, 0.8) and (0.8, -0.6) into (1.8, 3.2) and (2.4, -2.4).
        ("released", (1.8 * 2.4 - 3.2 * 2.4) / math.sqrt((1.8**2 + 3.2**2) * (2.4**2 + 2.4**2))),
        ("paper", 0.0),
    ]:
        method = METHOD.read({"learnable": True, "protocol": protocol, **ONLY, "paraphrase_weight": 1})
        extra = extra_of(method)
        with torch.no_grad():
            extra.directions.copy_(torch.diag(torch.tensor([3.0, 4.0])) @ torch.eye(2, DIM))
        rows = {"caption": 5 * _row(0.6, 0.8), "semclip_paraphrase": 2 * _row(0.8, -0.6)}
        assert method.losses(as_features(rows, extra))["paraphrase"].item() == pytest.approx(1 - cosine)


def test_the_variants_in_params_yaml_are_held_to_the_same_rows_of_the_papers_own_texts(settings: Settings) -> None:
    for name in ("semclip", "semclip_paraphrase", "semclip_negation"):
        method = configured(settings.methods[name], name)
        held_to = method.columns | method.rows
        assert held_to == {"image", "caption", "semclip_paraphrase", "negation"}, name


PARTS: dict[str, dict[str, Any]] = {
    "paraclip": {"terms": ["l2"]},
    "semclip": {"weight": 0.5, "contrastive_weight": 0, "n": 3},
    "pc_clip": {"weight": 0.1, "loss": "mse"},
}


def test_it_is_the_weighted_sum_of_its_parts_with_columns_and_tensors_of_all() -> None:
    method = JOINT.read({"parts": PARTS})
    columns = random_columns(method.columns)
    expected = {}
    for name, part in PARTS.items():
        entry = {"method": name, **{key: value for key, value in part.items() if key != "weight"}}
        for term, loss in losses_of(entry, columns).items():
            expected[f"{name}/{term}"] = part.get("weight", 1.0) * loss
    assert losses_of({"method": "joint", "parts": PARTS}, columns) == pytest.approx(expected)
    assert set(expected) == {"paraclip/l2", "semclip/paraphrase", "semclip/negation", "pc_clip/mse"}
    method = JOINT.read({"parts": {**PARTS, "laclip_ft": {"rewrites": ["rewrite"]}}})
    negated = {"image", "caption", "paraphrase_1", "semclip_paraphrase", "negation", "other_image", "difference"}
    assert method.columns == negated | {"drawn_caption"}
    assert method.rows == {"caption", "paraphrase_1", "paraphrase_2"}
    assert method.column_mixture == {"drawn_caption": {"caption": 0.5, "rewrite": 0.5}}
    state = JOINT.read({"parts": PARTS}).extra(small_encoder()).state_dict()
    assert {name: tuple(values.shape) for name, values in state.items()} == {"semclip.directions": (3, DIM)}


def test_defaults_train_paraphrase_negation_and_difference_and_warnings_are_those_of_the_parts() -> None:
    method = JOINT.read({})
    assert set(losses_of({"method": "joint"}, random_columns(method.columns))) == {
        "paraclip/l1_second", "paraclip/l2", "paraclip/l3",
        "semclip/paraphrase", "semclip/negation", "pc_clip/infonce",
    }  # fmt: skip
    assert method.warnings() == []
    (warning,) = JOINT.read({"parts": {"semclip": {"n": 1}}}).warnings()
    assert "n: 1" in warning


def test_parts_are_all_trained_visits_are_of_images_and_wrong_parts_named(tiny_encoder: Encoder) -> None:
    assert JOINT.read({"parts": {"pc_clip": {}}}).trainable == (TEXT_BLOCKS,)
    method = JOINT.read({"parts": {"pc_clip": {}, "paraclip": {}}})
    assert set(method.trainable) == {TEXT_BLOCKS, TEXT_TOWER}
    assert "token_embedding.weight" in method.freeze(tiny_encoder.model)
    for parts, visits in [
        (["pc_clip"], "pairs"),
        (["pc_clip", "semclip"], "pairs"),
        (["pc_clip", "paraclip"], "images"),
    ]:
        assert JOINT.read({"parts": {part: {} for part in parts}}).epoch_unit == visits
    for parts, message in [
        ({"semclip": {"x": 1}}, r"unknown key 'methods\.mine\.parts\.semclip\.x'"),
        ({"semclip": {"normalise": 1}}, r"'methods\.mine\.parts\.semclip\.normalise': did you mean 'normalised'"),
        ({"semclip": {"n": 0}}, r"key 'methods\.mine\.parts\.semclip\.n': Input should be greater than 0"),
        ({"semclip": 3}, r"key 'methods\.mine\.parts\.semclip': Input should be a valid dictionary"),
        ({"semclip": {"lr": 1e-3}}, r"key 'methods\.mine\.parts\.semclip\.lr' is common to all parts: move it to"),
        ({"semclap": {}}, r"key 'methods\.mine\.parts': method 'semclap' is unknown: did you mean 'semclip'"),
        ({"lm_text_tower": {}, "clip_scratch": {}}, r"\.clip_scratch': 'lm_text_tower' builds the text tower already"),
        ({"leaf": {}}, r"key 'methods\.mine\.parts\.leaf': it perturbs the shared captions"),
        ({}, r"key 'methods\.mine\.parts' is empty"),
    ]:
        with pytest.raises(InputError, match=message):
            JOINT.read({"parts": parts}, "mine")


@pytest.mark.parametrize("strategy", ["frozen", "finetuned"])
def test_a_part_may_build_the_text_tower_that_all_losses_train(tiny_encoder: Encoder, strategy: str) -> None:
    given = {"parts": {"lm_text_tower": {"strategy": strategy}, **PARTS}, "image_tower": "frozen"}
    method = JOINT.read(given)
    assert {"caption", "image"} < method.columns
    base_only = JOINT.read({"parts": PARTS})
    assert base_only.start(tiny_encoder) is tiny_encoder
    assert (method.builds_tower, base_only.builds_tower) == (True, False)
    encoder = method.start(tiny_encoder)
    trained = set(method.freeze(encoder.model))
    assert any(name.startswith("text.projection.") for name in trained)
    assert any(name.startswith("text.language.") for name in trained) == (strategy == "finetuned")
    losses = losses_of({"method": "joint", **given}, random_columns(method.columns))
    assert {"lm_text_tower/infonce", "paraclip/l2"} < set(losses)


def test_two_parts_files_are_named_and_different_similar_images_refused(tmp_path: Path) -> None:
    assert JOINT.read({"parts": {"conclip": {}, "negclip": {}}}).neighbours == Neighbours()
    released = {"protocol": "released", "distractor_data": "coco/data"}
    method = JOINT.read({"parts": {"conclip": released, "paraclip": {}}})
    assert method.neighbours == Neighbours(1, Path("coco/data"))
    assert method.files() == {"conclip.distractors": Path("coco/data/embeddings")}
    with pytest.raises(InputError, match="parts conclip and negclip need different similar images"):
        _ = JOINT.read({"parts": {"conclip": released, "negclip": {}}}).neighbours
    models = {name: tmp_path / name for name in ("lm_text_tower", "read_clip")}
    for folder in models.values():
        folder.mkdir()
    method = JOINT.read({"parts": {name: {"language_model": str(folder)} for name, folder in models.items()}})
    assert method.files() == {f"{name}.language_model": folder for name, folder in models.items()}
