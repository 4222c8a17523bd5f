"""A loaded encoder gives the vectors that it gives without a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.benchmarks.scoring.encoding.sentence_encoder import SentenceEncoder
from components.core.system.errors import InputError
from components.encoders.adapter import tokens
from components.encoders.adapter.encoder import Encoder
from components.serving import served
from components.serving.messages import EmbeddingRequest
from components.serving.served import Alias, load
from components.tracking import make_client
from tests.support.serving_registry import point

TEXTS = ["a dog", "two cats on a sofa", "<b>a</b> \x00 &amp; caf\u00e9", "a dog", "x " * 200]


@pytest.fixture
def folder(tmp_path: Path, tiny_encoder: Encoder) -> Path:
    tiny_encoder.save(tmp_path / "mine")
    return tmp_path / "mine"


def test_vectors_and_tokens(folder: Path, tiny_encoder: Encoder) -> None:
    found = load(str(folder))
    answers = found.embed([EmbeddingRequest(input=TEXTS[:2]), EmbeddingRequest(input=TEXTS[2:])])
    vectors = np.stack([vector for answer in answers for vector in answer.vectors])
    np.testing.assert_allclose(vectors, tiny_encoder.embed_texts(TEXTS), atol=1e-5)
    # Start, two words and end; start, five words and end; the last is cut at the context.
    assert answers[0].tokens == 4 + 7
    assert found.embed([EmbeddingRequest(input=TEXTS[-1])])[0].tokens == 24
    assert (found.id, found.names, found.dim) == ("mine", {"mine"}, 16)
    assert found.image_tower_sha256 == tiny_encoder.image_tower_hash()


def test_the_cache_is_bounded_and_changes_nothing(folder: Path) -> None:
    plain, kept = load(str(folder)), load(str(folder), cache=2)
    computed: list[list[str]] = []
    kept = replace(kept, embed_new=lambda texts: (computed.append(texts), plain.embed_new(texts))[1])
    for texts in (["a"], ["a", "b"], ["b", "a"], ["c", "d"], ["a"], TEXTS):
        (answer,), (expected,) = (one.embed([EmbeddingRequest(input=texts)]) for one in (kept, plain))
        np.testing.assert_allclose(np.stack(answer.vectors), np.stack(expected.vectors), atol=1e-6)
        assert answer.tokens == expected.tokens
        assert kept.cache is not None
        assert len(kept.cache) <= 2
    assert computed[:4] == [["a"], ["b"], ["c", "d"], ["a"]]


def test_words_are_not_kept_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_MOST_WORDS", 50)
    found = load(str(folder))
    before = found.embed([EmbeddingRequest(input="a dog")])[0].vectors[0]
    for number in range(20):
        found.embed([EmbeddingRequest(input=" ".join(f"word{chr(97 + number)}{chr(97 + word)}" for word in range(10)))])
        assert len(tokens._byte_pairs(24).cache) <= 50
    np.testing.assert_array_equal(found.embed([EmbeddingRequest(input="a dog")])[0].vectors[0], before)


def test_encoders_that_cannot_be_served(folder: Path, tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        tiny_encoder.model.text_projection.fill_(0)
    tiny_encoder.save(folder)
    with pytest.raises(InputError, match="does not give unit vectors"):
        load(str(folder))
    sentences = EncoderUnderTest("minilm", SentenceEncoder(None), "sha")  # type: ignore[arg-type]
    monkeypatch.setattr(served, "find_encoder", lambda _name: sentences)
    with pytest.raises(InputError, match="'minilm' has no image tower"):
        load("minilm")


def test_the_version_of_an_alias(tmp_path: Path, track_in: Callable[[Path], None]) -> None:
    track_in(tmp_path)
    assert Alias.of("models:/mine@challenger") == Alias("mine", "challenger")
    assert Alias.of("text-encoder/3") is Alias.of("models/paraclip") is None
    alias = Alias("text-encoder", "champion")
    assert alias.version() is None
    client = make_client()
    client.create_registered_model("text-encoder")
    client.create_model_version("text-encoder", str(tmp_path))
    point("champion", "1")
    assert alias.version() == "1"
    assert Alias("text-encoder", "challenger").version() is None
