"""Validation during training: logged, repeatable, and only promised where there is something to score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.settings import Train
from components.encoders.adapter.encoder import Encoder
from components.training.engine.gradients import Objective, Towers, evaluate
from components.training.held_out import DIRECTIONS, Data, HeldOut, check_export, watch
from components.training.rows.batches import Sampler, TableSource
from tests.support.toy_training import same, toy_losses, weights_of
from tests.support.toy_world import sentence

COUNT = 12


@pytest.fixture
def data(tiny_encoder: Encoder) -> Data:
    rng = np.random.default_rng(0)
    texts = {name: [sentence(rng) for _ in range(COUNT)] for name in ("caption", "paraphrase")}
    tokens = {name: tiny_encoder.tokenizer(column) for name, column in texts.items()}
    features = rng.normal(size=(COUNT, tiny_encoder.sidecar.embed_dim)).astype(np.float32)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    rows = TableSource(
        sampler=Sampler(np.arange(COUNT), 8, 0),
        names=[f"pair-{row}" for row in range(COUNT)],
        tokens=tokens,
        lengths={name: tiny_encoder.tokenizer.lengths(column) for name, column in tokens.items()},
        images={"image": np.arange(COUNT)},
        features=features,
        pixels=None,
        wanted=frozenset({"image", "caption", "paraphrase"}),
    )
    return Data(rows, {}, HeldOut(texts["caption"], texts["paraphrase"], lambda: unit), rows)


def _objective(encoder: Encoder) -> Objective:
    model = encoder.model
    return Objective(Towers(model, "cpu"), model, model, toy_losses, 5, World(), "cpu")


def test_losses_and_retrieval_are_logged_and_returned(data: Data, tiny_encoder: Encoder) -> None:
    logged: list[tuple[dict[str, float], int]] = []
    before = weights_of(tiny_encoder.model)
    objective = _objective(tiny_encoder)
    validate = watch(data, objective, tiny_encoder.tokenizer, lambda found, step: logged.append((found, step)))
    assert validate is not None
    found = validate(7)
    assert data.held_out is not None
    assert data.held_rows is not None
    losses = {name: float(loss) for name, loss in evaluate(objective, next(data.held_rows.epoch(0))).items()}
    expected = {f"validation/loss/{name}": loss for name, loss in losses.items()}
    expected |= {"validation/loss": sum(losses.values())}
    assert found == pytest.approx(expected | data.held_out.score(tiny_encoder.model, tiny_encoder.tokenizer, "cpu"))
    assert set(DIRECTIONS) <= set(found)
    assert validate(8) == found
    assert logged == [(found, 7), (found, 8)]
    assert same(weights_of(tiny_encoder.model), before)
    assert all(weights.grad is None for weights in tiny_encoder.model.parameters())


@pytest.mark.parametrize("left", ["held_out", "held_rows"])
def test_either_half_is_enough(left: str, data: Data, tiny_encoder: Encoder) -> None:
    halves: dict[str, Any] = {"held_out": None, "held_rows": None} | {left: getattr(data, left)}
    validate = watch(Data(data.source, {}, **halves), _objective(tiny_encoder), tiny_encoder.tokenizer, lambda *_: None)
    assert validate is not None
    assert ("validation/loss" in validate(0)) == (left == "held_rows")
    assert ("validation/r_at_5" in validate(0)) == (left == "held_out")


def test_with_nothing_to_score_there_is_no_validation(data: Data, tiny_encoder: Encoder) -> None:
    assert watch(Data(data.source, {}, None, None), _objective(tiny_encoder), tiny_encoder.tokenizer, print) is None


def _train(**changes: Any) -> Train:
    return Train.model_validate({"state": "state", "validate_every": 5} | changes)


@pytest.mark.parametrize("metric", sorted(DIRECTIONS))
def test_exporting_by_a_metric_that_there_will_not_be_is_refused(metric: str, data: Data) -> None:
    check_export(_train(export=metric), data)
    check_export(_train(export="last", validate_every=None), Data(data.source, {}, None, None))
    with pytest.raises(InputError, match=f"train.export '{metric}' needs train.validate_every"):
        check_export(_train(export=metric, validate_every=None), data)
    with pytest.raises(InputError, match=f"train.export '{metric}' has too few held-out rows"):
        check_export(_train(export=metric), Data(data.source, {}, None, None))


def test_an_overlap_needs_paraphrases(data: Data) -> None:
    assert data.held_out is not None
    alone = HeldOut(data.held_out.captions, None, data.held_out.gallery)
    check_export(_train(export="validation/r_at_5"), Data(data.source, {}, alone, None))
    with pytest.raises(InputError, match="'validation/ao_at_10' has too few held-out rows"):
        check_export(_train(export="validation/ao_at_10"), Data(data.source, {}, alone, None))
