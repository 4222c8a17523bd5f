"""Results of an encoder on benchmarks; geometry and zero-shot classification on features given by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.core.compute.metrics import BLOCK
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import LABELS
from components.data.test_sets.files import drawn
from components.encoders.adapter.encoder import Encoder
from components.evaluation.benchmarks.published.difference_classification import pooled, unlike_pairs
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.protocols.geometry import classified, margins
from components.evaluation.scoring.protocols.zero_shot import comparative_weights, prompt_ensemble
from components.evaluation.scoring.results import Folders, read_report, read_scores, write_results
from research.experiments import embedding_geometry

Make = Callable[..., Settings]


@pytest.fixture
def encoder(stub: Any, vectors: dict[str, Sequence[float]], monkeypatch: pytest.MonkeyPatch) -> Any:
    made = stub(vectors)
    monkeypatch.setattr(Encoder, "load", staticmethod(lambda _folder: made))
    return made


def test_results_have_values_intervals_and_equal_bytes(encoder: Any, folders: Folders, make_settings: Make) -> None:
    report = evaluate.run(make_settings(), "base", folders)
    content = json.loads((folders.metrics / "base.json").read_text())
    assert set(content) == {"encoder", "protocol", "data_hash", "encoder_sha256", "test_queries", "metrics"}
    assert content["encoder_sha256"] == "weights of base"
    # Two swaps and two ratings are of one picture, and nothing else asks about a picture twice.
    protocols = "paraphrased_retrieval=1 retrieval=1 zero_shot=1 swaps=1+pictures caption_ratings=1+pictures"
    assert content["protocol"] == protocols
    found = content["metrics"]["paraphrased_retrieval/ao_at_2"]
    assert set(found) == {"value", "ci95", "higher_is_better", "queries"}
    assert found["ci95"] is None, "three queries are too few"
    for metric, value in (
        ("paraphrased_retrieval/ao_at_2", (0.5 + 0.25 + 1) / 3),
        ("swaps/relation_accuracy", 2 / 3),
        ("swaps/relation_macro_accuracy", 1 / 2),
    ):
        assert content["metrics"][metric]["value"] == pytest.approx(value), metric
    assert read_report("base", folders.metrics) == report
    scores = read_scores(report, folders.per_query)
    assert scores.values["paraphrased_retrieval/ao_at_2"] == pytest.approx([0.5, 0.25, 1])
    assert {*scores.values, *scores.correlations} == set(report.metrics)
    assert scores.correlations["caption_ratings/tau_c"].gold.tolist() == [1, 2, 4, 4]
    assert set(scores.strata) == {"swaps/relation_macro_accuracy"}
    assert len(scores.rankings) == 2
    pictures = {f"swaps/relation_{kind}accuracy": [0, 0, 2] for kind in ("", "macro_")}
    found = {name: numbers.tolist() for name, numbers in scores.pictures.items()}
    assert found == pictures | {"caption_ratings/tau_c": [0, 0, 1, 2]}

    def written() -> list[bytes]:
        evaluate.run(make_settings(), "base", folders)
        return [(folders.metrics / "base.json").read_bytes(), (folders.per_query / "base.safetensors").read_bytes()]

    assert written() == written()


def test_features_serve_a_tower_and_tables_are_hashed(encoder: Any, folders: Folders, make_settings: Make) -> None:
    evaluate.run(make_settings(), "base", folders)
    assert encoder.images_asked == 0
    encoder.sidecar = encoder.sidecar.model_copy(update={"image_tower_sha256": "another"})
    evaluate.run(make_settings(), "base", folders)
    assert encoder.images_asked == 4
    before = evaluate.run(make_settings(), "base", folders)
    LABELS.write(folders.evaluation / "labels.parquet", {"image_id": ["a"], "label": ["cat"]})
    assert evaluate.run(make_settings(), "base", folders).data_hash != before.data_hash
    with pytest.raises(InputError, match=r"base.safetensors and the metrics are of different evaluations"):
        read_scores(before, folders.per_query)


@pytest.mark.parametrize("stored", [True, False])
def test_image_features_that_are_not_finite_are_refused(
    encoder: Any, folders: Folders, make_settings: Make, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    features = np.eye(4, dtype=np.float32)
    features[2] = np.nan
    if stored:
        np.save(folders.embeddings / "test.npy", features)
    else:
        encoder.sidecar = encoder.sidecar.model_copy(update={"image_tower_sha256": "another"})
        monkeypatch.setattr(encoder, "embed_images", lambda *_arguments: features)
    with pytest.raises(InputError, match="encoder 'base' gives picture 'c' a feature that is not finite"):
        evaluate.run(make_settings(), "base", folders)
    assert not folders.metrics.exists()
    assert not folders.per_query.exists()


def test_missing_and_damaged_results_are_named(encoder: Any, folders: Folders, make_settings: Make) -> None:
    report = evaluate.run(make_settings(), "base", folders)
    write_results(
        report, Scores({"retrieval/t2i_recall_at_5": np.array([1.0, np.nan])}), folders.metrics, folders.per_query
    )
    with pytest.raises(InputError, match=r"base.safetensors is damaged \(a metric is given NaN"):
        read_scores(report, folders.per_query)
    for path in (folders.per_query / "base.safetensors", folders.metrics / "base.json"):
        path.write_bytes(b"\x00broken")
        with pytest.raises(InputError, match=rf"{path.name} is damaged"):
            read_scores(read_report("base", folders.metrics), folders.per_query)
        path.unlink()
        with pytest.raises(InputError, match=rf"{path.name} is missing: run .*evaluate@base"):
            read_scores(read_report("base", folders.metrics), folders.per_query)


def test_missing_encoders_and_tables_are_named(folders: Folders, make_settings: Make) -> None:
    for name, refusal in (("absent", "models/absent"), ("models/base", "'models/base' is not an encoder's name")):
        with pytest.raises(InputError, match=refusal):
            evaluate.run(make_settings(), name, folders)
    # Tables are checked before an encoder is loaded.
    (folders.evaluation / "labels.parquet").unlink()
    with pytest.raises(InputError, match=r"labels.parquet is missing, benchmark 'zero_shot' requires it"):
        evaluate.run(make_settings(), "absent", folders)


X, Y, Z = np.eye(3, dtype=np.float32)


def test_margins_and_uniformity_by_hand() -> None:
    found = margins(np.stack([X, Y, X, X]), np.stack([Y, X, Y, X]), np.stack([X, X, Z, X]))
    assert found == pytest.approx([2**-0.5, -(2**-0.5), 0, 0])
    assert classified(found, "right").tolist() == [1, 0, 1, 1]
    assert classified(found, "wrong").tolist() == [1, 0, 0, 0]
    assert embedding_geometry.uniformity(np.stack([X, X, X])) == pytest.approx(0)
    # One pair at squared distance 4, two at 2.
    wanted = math.log((math.exp(-8) + 2 * math.exp(-4)) / 3)
    assert embedding_geometry.uniformity(np.stack([X, -X, Y])) == pytest.approx(wanted)
    features = np.random.default_rng(1).normal(size=(BLOCK + 7, 3)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    potential = np.exp(4 * (features.astype(np.float64) @ features.T - 1))
    mean = (potential.sum() - np.trace(potential)) / (len(features) * (len(features) - 1))
    assert embedding_geometry.uniformity(features) == pytest.approx(math.log(mean))
    with pytest.raises(ValueError, match="at least two features"):
        embedding_geometry.uniformity(X[None])


def test_draws_are_seeded_permutations_and_pooled_runs_keep_their_seed_and_error() -> None:
    torch.manual_seed(3)
    assert drawn(200, 100, 3).tolist() == torch.randperm(200)[:100].tolist()
    assert sorted(drawn(7, 100, 0)) == list(range(7))
    pictures = [np.arange(8).reshape(4, 2), np.array([[0, 1], [0, 2]])]
    found = pooled("x", [np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.0, 1.0])], pictures)
    assert found.values["x/accuracy"].tolist() == [1, 1, 1, 1, 0, 1]
    assert found.strata["x/accuracy"].tolist() == [0, 0, 0, 0, 1, 1]
    assert found.pictures["x/accuracy"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [0, 1], [0, 2]]
    assert found.scalars["x/standard_error"] == pytest.approx(0.25 / 2**0.5)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 5))
def test_every_unlike_pair_of_the_drawn_comes_once(labels: list[int], seed: int) -> None:
    groups = np.array(labels)
    chosen = drawn(len(groups), 10, seed)
    found = [tuple(pair) for pair in unlike_pairs(chosen, groups).tolist()]
    order = chosen.tolist()
    wanted = {(a, b) for place, a in enumerate(order) for b in order[place + 1 :] if groups[a] != groups[b]}
    assert len(found) == len(set(found))
    assert set(found) == wanted


def reals(rows: Any) -> Any:
    return np.array(rows, dtype=np.float32)


def test_each_prompt_counts_the_same_and_estimates_of_one_class_are_averaged() -> None:
    prompts = reals([[[10, 0], [3, 4]], [[0, 1], [3, 4]]])
    half = np.sqrt(0.5)
    assert prompt_ensemble(prompts) == pytest.approx(reals([[half, half], [0.6, 0.8]]))
    weights = reals([[1, 0], [0, 1], [0.6, 0.8]])
    # Estimates of class 0: (0, 1) - (0, 1) = (0, 0) and (0.6, 0.8) - (0, -1) = (0.6, 1.8); mean (0.3, 0.9).
    new = comparative_weights(weights, reals([[0, 1], [0, -1]]), np.array([1, 2]), np.array([0, 0]), 0.0)
    assert new[0] == pytest.approx(np.array([0.3, 0.9]) / np.sqrt(0.9))
    assert weights[0].tolist() == [1, 0], "the old weights stay"
