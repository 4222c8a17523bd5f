from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import LABELS
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.results import Folders, read_report, read_scores, write_results

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
