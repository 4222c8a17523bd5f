"""Joint adds other methods' losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.training.methods.contract.method import TEXT_BLOCKS, TEXT_TOWER, Neighbours
from components.training.methods.joint import METHOD
from tests.unit.training.methods.examples import DIM, losses_of, random_columns, small_encoder

PARTS: dict[str, dict[str, Any]] = {
    "paraclip": {"terms": ["l2"]},
    "semclip": {"weight": 0.5, "contrastive_weight": 0, "n": 3},
    "pc_clip": {"weight": 0.1, "loss": "mse"},
}


def test_it_is_the_weighted_sum_of_its_parts() -> None:
    method = METHOD.read({"parts": PARTS})
    columns = random_columns(method.columns)
    expected = {}
    for name, part in PARTS.items():
        entry = {"method": name, **{key: value for key, value in part.items() if key != "weight"}}
        for term, loss in losses_of(entry, columns).items():
            expected[f"{name}/{term}"] = part.get("weight", 1.0) * loss
    assert losses_of({"method": "joint", "parts": PARTS}, columns) == pytest.approx(expected)
    assert set(expected) == {"paraclip/l2", "semclip/paraphrase", "semclip/negation", "pc_clip/mse"}


def test_a_batch_has_the_columns_and_rows_of_all_parts() -> None:
    method = METHOD.read({"parts": {**PARTS, "laclip_ft": {"rewrites": ["rewrite"]}}})
    negated = {"image", "caption", "paraphrase_1", "semclip_paraphrase", "negation", "other_image", "difference"}
    assert method.columns == negated | {"drawn_caption"}
    assert method.rows == {"caption", "paraphrase_1", "paraphrase_2"}
    assert method.column_mixture == {"drawn_caption": {"caption": 0.5, "rewrite": 0.5}}


@pytest.mark.parametrize(
    ("parts", "visits"),
    [(["pc_clip"], "pairs"), (["pc_clip", "semclip"], "pairs"), (["pc_clip", "paraclip"], "images")],
)
def test_an_epoch_visits_images_once_if_one_part_does(parts: list[str], visits: str) -> None:
    assert METHOD.read({"parts": {part: {} for part in parts}}).epoch_unit == visits


def test_parts_keep_their_own_tensors() -> None:
    state = METHOD.read({"parts": PARTS}).extra(small_encoder()).state_dict()
    assert {name: tuple(values.shape) for name, values in state.items()} == {"semclip.directions": (3, DIM)}


def test_defaults_train_paraphrase_negation_and_difference_and_warnings_are_those_of_the_parts() -> None:
    method = METHOD.read({})
    assert set(losses_of({"method": "joint"}, random_columns(method.columns))) == {
        "paraclip/l1_second", "paraclip/l2", "paraclip/l3",
        "semclip/paraphrase", "semclip/negation", "pc_clip/infonce",
    }  # fmt: skip
    assert method.warnings() == []
    (warning,) = METHOD.read({"parts": {"semclip": {"n": 1}}}).warnings()
    assert "n: 1" in warning


def test_parameters_of_any_part_are_trained(tiny_encoder: Encoder) -> None:
    assert METHOD.read({"parts": {"pc_clip": {}}}).trainable == (TEXT_BLOCKS,)
    method = METHOD.read({"parts": {"pc_clip": {}, "paraclip": {}}})
    assert set(method.trainable) == {TEXT_BLOCKS, TEXT_TOWER}
    assert "token_embedding.weight" in method.freeze(tiny_encoder.model)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"semclip": {"x": 1}}, r"unknown key 'methods\.mine\.parts\.semclip\.x'"),
        ({"semclip": {"normalise": 1}}, r"'methods\.mine\.parts\.semclip\.normalise': did you mean 'normalised'"),
        ({"semclip": {"n": 0}}, r"key 'methods\.mine\.parts\.semclip\.n': Input should be greater than 0"),
        ({"semclip": 3}, r"key 'methods\.mine\.parts\.semclip': Input should be a valid dictionary"),
        ({"semclip": {"lr": 1e-3}}, r"key 'methods\.mine\.parts\.semclip\.lr' is common to all parts: move it to"),
        ({"semclap": {}}, r"key 'methods\.mine\.parts': method 'semclap' is unknown: did you mean 'semclip'"),
        ({"lm_text_tower": {}, "clip_scratch": {}}, r"\.clip_scratch': 'lm_text_tower' builds the text tower already"),
        ({"leaf": {}}, r"key 'methods\.mine\.parts\.leaf': it perturbs the shared captions"),
        ({}, r"key 'methods\.mine\.parts' is empty"),
    ],
)
def test_wrong_parts_are_named(parts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        METHOD.read({"parts": parts}, "mine")


@pytest.mark.parametrize("strategy", ["frozen", "finetuned"])
def test_a_part_may_build_the_text_tower_that_all_losses_train(tiny_encoder: Encoder, strategy: str) -> None:
    given = {"parts": {"lm_text_tower": {"strategy": strategy}, **PARTS}, "image_tower": "frozen"}
    method = METHOD.read(given)
    assert {"caption", "image"} < method.columns
    base_only = METHOD.read({"parts": PARTS})
    assert base_only.start(tiny_encoder) is tiny_encoder
    assert (method.builds_tower, base_only.builds_tower) == (True, False)
    encoder = method.start(tiny_encoder)
    trained = set(method.freeze(encoder.model))
    assert any(name.startswith("text.projection.") for name in trained)
    assert any(name.startswith("text.language.") for name in trained) == (strategy == "finetuned")
    losses = losses_of({"method": "joint", **given}, random_columns(method.columns))
    assert {"lm_text_tower/infonce", "paraclip/l2"} < set(losses)


def test_parts_that_need_different_similar_images_are_refused() -> None:
    assert METHOD.read({"parts": {"conclip": {}, "negclip": {}}}).neighbours == Neighbours()
    released = {"protocol": "released", "distractor_data": "coco/data"}
    method = METHOD.read({"parts": {"conclip": released, "paraclip": {}}})
    assert method.neighbours == Neighbours(1, Path("coco/data"))
    assert method.files() == {"conclip.distractors": Path("coco/data/embeddings")}
    with pytest.raises(InputError, match="parts conclip and negclip need different similar images"):
        _ = METHOD.read({"parts": {"conclip": released, "negclip": {}}}).neighbours


def test_two_parts_language_models_are_both_named(tmp_path: Path) -> None:
    models = {name: tmp_path / name for name in ("lm_text_tower", "read_clip")}
    for folder in models.values():
        folder.mkdir()
    method = METHOD.read({"parts": {name: {"language_model": str(folder)} for name, folder in models.items()}})
    assert method.files() == {f"{name}.language_model": folder for name, folder in models.items()}
