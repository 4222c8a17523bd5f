"""Rows kept from training, early metrics on them against brute force, and validation during training."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.core.compute.distributed import World
from components.core.settings import Train
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.training.engine.gradients import Objective, Towers, evaluate
from components.training.held_out import DIRECTIONS, Data, HeldOut, Vectors, check_export, choose_held_out, watch
from components.training.rows.batches import CachedFeatures, Sampler, TableSource, Texts
from tests.support.toy_training import same, toy_losses, weights_of
from tests.support.toy_world import sentence


def _rows(ids: list[str], images: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"id": pd.Series(ids, dtype=str), "image_id": pd.Series(images, dtype=str)})


@given(st.lists(st.text("abcdef", min_size=1, max_size=4)), st.integers(0, 20), st.integers(0, 3))
def test_at_most_a_tenth_is_held_out_whatever_the_order(ids: list[str], count: int, seed: int) -> None:
    images = [f"image {name[0]}{len(name)}" for name in ids]
    held = choose_held_out(_rows(ids, images), count, seed)
    assert held <= set(images)
    assert len(held) == min(count, len(set(images)) // 10)
    again = sorted(zip(ids, images, strict=True))
    more = _rows([*(name for name, _ in again), *ids], [*(image for _, image in again), *images])
    assert held == choose_held_out(more, count, seed)
    assert choose_held_out(_rows(ids, images), count // 2, seed) <= held


def test_images_of_one_caption_are_drawn_by_their_pairs_ids() -> None:
    """SHA-256 over seed and id, each with its length in eight bytes before it: the draw of all published figures."""
    ids = [f"pair-{row}" for row in range(100)]

    def draw(name: str) -> str:
        parts = (b"3", name.encode())
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()

    expected = {f"image of {name}" for name in sorted(ids, key=draw)[:7]}
    assert choose_held_out(_rows(ids, [f"image of {name}" for name in ids]), 7, 3) == expected
    # More captions of an image, with larger ids, leave its place as it is.
    more = [f"z{name}" for name in ids]
    assert choose_held_out(_rows([*more, *ids], [f"image of {name}" for name in ids] * 2), 7, 3) == expected


def _ranked(texts: Vectors, gallery: Vectors) -> list[list[int]]:
    return [sorted(range(len(gallery)), key=lambda row: (-float(text @ gallery[row]), row)) for text in texts]


def _unit(rows: int, dim: int) -> Vectors:
    found = np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float32)
    unit: Vectors = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


@pytest.fixture
def queries() -> HeldOut:
    rng = np.random.default_rng(1)
    captions = [sentence(rng) for _ in range(30)]
    # Half of the paraphrases are the captions themselves, so that overlaps range from none to all.
    paraphrases = [text if row % 2 else sentence(rng) for row, text in enumerate(captions)]
    return HeldOut(captions, paraphrases, torch.from_numpy(_unit(40, 16)))


def test_metrics_are_those_of_brute_force(queries: HeldOut, tiny_encoder: Encoder) -> None:
    scores = queries.score(tiny_encoder.model, tiny_encoder.tokenizer, "cpu")
    assert queries.paraphrases is not None
    gallery = queries.gallery.numpy()
    found, others = (
        _ranked(tiny_encoder.embed_texts(texts), gallery) for texts in (queries.captions, queries.paraphrases)
    )
    hits = [row in ranks[:5] for row, ranks in enumerate(found)]
    overlaps = [
        sum(len(set(one[:depth]) & set(other[:depth])) / depth for depth in range(1, 11)) / 10
        for one, other in zip(found, others, strict=True)
    ]
    assert scores == {
        "validation/r_at_5": pytest.approx(np.mean(hits)),
        "validation/ao_at_10": pytest.approx(np.mean(overlaps)),
    }
    assert 0 < np.mean(hits) < 1


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
        columns=frozenset({"image", "caption", "paraphrase"}),
        names=[f"pair-{row}" for row in range(COUNT)],
        texts={name: Texts(column, tiny_encoder.tokenizer.lengths(column)) for name, column in tokens.items()},
        images={"image": np.arange(COUNT)},
        shown=CachedFeatures(features),
    )
    held = replace(rows, sampler=replace(rows.sampler, drops=False))
    return Data({}, frozenset(), HeldOut(texts["caption"], texts["paraphrase"], torch.from_numpy(unit)), held)


def _objective(encoder: Encoder) -> Objective:
    model = encoder.model
    return Objective(Towers(model, "cpu"), model, model, toy_losses, 5, World(), "cpu")


def test_losses_and_retrieval_are_logged_and_returned(data: Data, tiny_encoder: Encoder) -> None:
    logged: list[tuple[dict[str, float], int]] = []
    before = weights_of(tiny_encoder.model)
    objective = _objective(tiny_encoder)
    validate = watch(data, tiny_encoder.tokenizer, lambda found, step: logged.append((found, step)))
    assert validate is not None
    found = validate(objective, 7)
    assert data.held_out is not None
    assert data.held_rows is not None
    batches = list(data.held_rows.epoch(0))
    # Twelve rows in batches of at most eight.
    assert [len(batch.ids) for batch in batches] == [6, 6]
    assert {name for batch in batches for name in batch.ids} == set(data.held_rows.names)
    halves = [evaluate(objective, batch) for batch in batches]
    losses = {name: sum(float(half[name]) for half in halves) / 2 for name in halves[0]}
    expected = {f"validation/loss/{name}": loss for name, loss in losses.items()}
    expected |= {"validation/loss": sum(losses.values())}
    assert found == pytest.approx(expected | data.held_out.score(tiny_encoder.model, tiny_encoder.tokenizer, "cpu"))
    assert set(DIRECTIONS) <= set(found)
    assert validate(objective, 8) == found
    assert logged == [(found, 7), (found, 8)]
    # Either half is enough.
    for left, metric in (("held_rows", "validation/loss"), ("held_out", "validation/r_at_5")):
        halves: dict[str, Any] = {"held_out": None, "held_rows": None} | {left: getattr(data, left)}
        validate = watch(Data({}, frozenset(), **halves), tiny_encoder.tokenizer, lambda *_: None)
        assert validate is not None
        assert (DIRECTIONS.keys() & validate(objective, 0).keys()) - {"validation/ao_at_10"} == {metric}
    assert same(weights_of(tiny_encoder.model), before)
    assert all(weights.grad is None for weights in tiny_encoder.model.parameters())


def test_a_loss_that_draws_is_the_same_at_every_step(data: Data, tiny_encoder: Encoder) -> None:
    objective = replace(_objective(tiny_encoder), losses=lambda _features: {"drawn": torch.rand(())})
    validate = watch(data, tiny_encoder.tokenizer, lambda *_: None)
    assert validate is not None
    before = torch.get_rng_state()
    first = validate(objective, 1)["validation/loss"]
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert validate(objective, 2)["validation/loss"] == first


def _train(**changes: Any) -> Train:
    return Train.model_validate({"checkpoint_dir": "state", "validate_every": 5} | changes)


@pytest.mark.parametrize("metric", sorted(DIRECTIONS))
def test_exporting_by_a_metric_that_no_run_will_log_is_refused(metric: str, data: Data) -> None:
    check_export(_train(select_checkpoint=metric), data)
    check_export(_train(select_checkpoint="last", validate_every=None), Data({}, frozenset(), None, None))
    with pytest.raises(InputError, match=f"train.select_checkpoint '{metric}' needs train.validate_every"):
        check_export(_train(select_checkpoint=metric, validate_every=None), data)
    with pytest.raises(InputError, match=f"train.select_checkpoint '{metric}' has too few held-out rows"):
        check_export(_train(select_checkpoint=metric), Data({}, frozenset(), None, None))
    assert data.held_out is not None
    captions = Data({}, frozenset(), replace(data.held_out, paraphrases=None), None)
    has = metric == "validation/r_at_5"
    with nullcontext() if has else pytest.raises(InputError, match=f"'{metric}' has too few held-out rows"):
        check_export(_train(select_checkpoint=metric), captions)
