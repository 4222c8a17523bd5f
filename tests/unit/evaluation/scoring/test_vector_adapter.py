"""An affine map between two embedding spaces is found, and what it loses is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows
from components.evaluation.scoring.vector_adapter import WEIGHTS, Fitted, adapt, fit, read_vectors, save

RNG = np.random.default_rng(0)


def _spaces(rows: int, shared: int, dim: int = 12, noise: float = 0.0) -> tuple[Vectors, Vectors]:
    """Unit vectors that share so many directions, in two spaces."""
    facts = RNG.normal(size=(rows, shared))
    one, other = (facts @ RNG.normal(size=(shared, dim)) + noise * RNG.normal(size=(rows, dim)) for _ in range(2))
    return unit_rows(one.astype(np.float32))[0], unit_rows(other.astype(np.float32))[0]


def test_a_map_is_recovered_and_a_low_rank_limits_it() -> None:
    turned = np.linalg.qr(RNG.normal(size=(12, 12)))[0].astype(np.float32)
    old, _ = _spaces(500, 12)
    adapter, _, cosine = fit(old @ turned, old)
    assert cosine > 0.9999
    np.testing.assert_allclose(adapter(old[:5] @ turned), old[:5], atol=1e-3)
    low, _, less = fit(old @ turned, old, rank=3)
    assert np.linalg.matrix_rank(low.weight, tol=1e-3) == 3
    assert less < cosine


def test_noise_chooses_a_stronger_ridge() -> None:
    clean, noisy = (fit(*_spaces(150, 6, 40, noise))[1] for noise in (0.0, 3.0))
    assert noisy > clean


def test_recall_is_measured_on_test_captions_that_were_not_fitted(tiny_encoder: Encoder, settings: Settings) -> None:
    captions = [f"a mug with number {number}" for number in range(400)]
    turned = np.linalg.qr(RNG.normal(size=(16, 16)))[0].astype(np.float32)
    vectors = tiny_encoder.embed_texts(captions) @ turned
    tests = [(captions[row], row) for row in range(100)] + [("a caption without a vector", 100)]
    images = tiny_encoder.embed_texts(captions[:101])
    found = adapt(tiny_encoder, captions, vectors, tests, images, settings.evaluate)
    assert found.captions == 300
    assert found.recall is not None
    ours, theirs, less = found.recall
    assert ours.value == 1
    assert less.value == pytest.approx(theirs.value - ours.value)
    assert theirs.value > 0.9
    other = adapt(tiny_encoder, captions, RNG.permutation(vectors), tests, images, settings.evaluate)
    assert other.recall is not None
    assert other.recall[1].value < 0.3
    assert adapt(tiny_encoder, captions, vectors, [], images, settings.evaluate).recall is None
    with pytest.raises(InputError, match="50 captions are not test captions: at least 100 are needed"):
        adapt(tiny_encoder, captions[:150], vectors[:150], tests[:100], images, settings.evaluate)


def test_vectors_are_read_with_their_captions_and_the_adapter_as_its_readme_says(tmp_path: Path) -> None:
    new, old = _spaces(200, 12)
    captions = [f"caption {row}" for row in range(200)]
    np.save(tmp_path / "closed.npy", 3 * new)
    pq.write_table(pa.table({"caption": captions}), tmp_path / "closed.parquet")
    texts, vectors = read_vectors(tmp_path / "closed.npy")
    assert texts == captions
    np.testing.assert_allclose(vectors, new, atol=1e-6)
    adapter, ridge, cosine = fit(new, old)
    save(Fitted(adapter, 200, ridge, cosine, None), tmp_path / "adapter", "a comparison")
    parts = load_file(tmp_path / "adapter" / WEIGHTS)
    query = new[0] @ parts["weight"] + parts["bias"]
    np.testing.assert_allclose(query / np.linalg.norm(query), adapter(new[:1])[0], atol=1e-6)
    assert "a comparison" in (tmp_path / "adapter" / "README.md").read_text()
    for broken, words in ((np.zeros_like(new), "zero or not finite"), (new[:50], "has 50 rows, .* has 200")):
        np.save(tmp_path / "closed.npy", broken)
        with pytest.raises(InputError, match=words):
            read_vectors(tmp_path / "closed.npy")
    with pytest.raises(InputError, match=r"none\.npy is damaged .*No such file"):
        read_vectors(tmp_path / "none.npy")
