"""Loaded encoders give the same vectors as without a server; a new version is served if it fits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from components.core.system.errors import InputError
from components.encoders.adapter import tokens
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.precision import Precision
from components.encoders.excluding import embed_queries
from components.encoders.sentence_encoder import SentenceEncoder
from components.encoders.under_test import EncoderUnderTest
from components.serving.server import served
from components.serving.server.address import ServingLimits
from components.serving.server.batches import Batcher, Metrics
from components.serving.server.messages import EmbeddingRequest, EncodeResponse
from components.serving.server.serve import Watch
from components.serving.server.served import Alias, Loading, Served
from tests.conftest import TINY
from tests.support.serving import Stub, stub_served, wait_until
from tests.support.serving_registry import register_champion

TEXTS = ["a dog", "two cats on a sofa", "<b>a</b> \x00 &amp; caf\u00e9", "a dog", "x " * 200]


@pytest.fixture
def folder(tmp_path: Path, tiny_encoder: Encoder) -> Path:
    tiny_encoder.save(tmp_path / "mine")
    return tmp_path / "mine"


def _answer(found: Served, texts: str | list[str]) -> EncodeResponse:
    request = EmbeddingRequest(input=texts)
    (answer,) = found.embed([request], found.tokens(request))
    return answer


def test_vectors_and_tokens_also_of_texts_that_exclude(folder: Path, tiny_encoder: Encoder) -> None:
    found = Loading().load(str(folder))
    requests = [EmbeddingRequest(input=TEXTS[:2]), EmbeddingRequest(input=TEXTS[2:])]
    answers = found.embed(requests, found.tokens(requests[0]))
    vectors = np.stack([vector for answer in answers for vector in answer.vectors])
    np.testing.assert_allclose(vectors, tiny_encoder.embed_texts(TEXTS), atol=1e-5)
    # Start, two words and end; start, five words and end; the last is cut at the context.
    assert answers[0].tokens == 4 + 7
    assert _answer(found, TEXTS[-1]).tokens == 24
    assert (found.id, found.names, found.dim) == ("mine", {"mine"}, 16)
    assert found.image_tower_sha256 == tiny_encoder.image_tower_hash()
    plain, chosen = Loading().load(str(folder)), Loading(cache=8, excludes=True).load(str(folder))
    for texts in (["a dog", "a dog -cat"], ["a dog -cat"], ["a cat without a dog"]):
        found = _answer(chosen, texts)
        np.testing.assert_allclose(found.vectors, embed_queries(tiny_encoder.embed_texts, texts), atol=1e-5)
        np.testing.assert_allclose(_answer(plain, texts).vectors, tiny_encoder.embed_texts(texts), atol=1e-5)
    # Start, words and end of both parts.
    assert _answer(chosen, "a dog -cat").tokens == 4 + 3


@pytest.mark.parametrize(("precision", "cosine"), [("bf16", 0.999), ("int8", 0.99)])
def test_vectors_in_fewer_bits_fit_the_index_of_the_tower(folder: Path, precision: Precision, cosine: float) -> None:
    exact, rounded = Loading().load(str(folder)), Loading(precision=precision).load(str(folder))
    first, second = (np.stack(_answer(found, TEXTS).vectors) for found in (exact, rounded))
    assert cosine < (first * second).sum(axis=1).min() < 1 - 1e-6
    assert (exact.precision, rounded.precision) == ("fp32", precision)
    assert (rounded.id, rounded.image_tower_sha256) == (exact.id, exact.image_tower_sha256)


def test_the_cache_is_bounded_and_words_are_not_kept_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, kept = Loading().load(str(folder)), Loading(cache=2).load(str(folder))
    computed: list[list[str]] = []
    kept = replace(kept, tokenizer=lambda texts: (computed.append(texts), plain.tokenizer(texts))[1])
    for texts in (["a"], ["a", "b"], ["b", "a"], ["c", "d"], ["a"], TEXTS):
        answer, expected = (_answer(one, texts) for one in (kept, plain))
        np.testing.assert_allclose(np.stack(answer.vectors), np.stack(expected.vectors), atol=1e-6)
        assert answer.tokens == expected.tokens
        assert kept.cache is not None
        assert len(kept.cache) <= 2
    assert computed[:4] == [["a"], ["b"], ["c", "d"], ["a"]]
    monkeypatch.setattr(served, "_MOST_WORDS", 50)
    found = Loading().load(str(folder))
    before = _answer(found, "a dog").vectors[0]
    for number in range(20):
        _answer(found, " ".join(f"word{chr(97 + number)}{chr(97 + word)}" for word in range(10)))
        assert len(tokens._byte_pairs(24).cache) <= 50
    np.testing.assert_array_equal(_answer(found, "a dog").vectors[0], before)


def test_encoders_that_cannot_be_served(folder: Path, tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        tiny_encoder.model.text_projection.fill_(0)
    tiny_encoder.save(folder)
    with pytest.raises(InputError, match="does not give unit vectors"):
        Loading().load(str(folder))
    sentences = EncoderUnderTest("minilm", SentenceEncoder(None), "sha")  # type: ignore[arg-type]
    monkeypatch.setattr(served, "find_encoder", lambda _name, **_: sentences)
    with pytest.raises(InputError, match="'minilm' has no image tower"):
        Loading().load("minilm")


class Registry:
    """A registry whose alias and failures a test sets."""

    def __init__(self) -> None:
        self.version: str | Exception | None = "1"
        self.tower, self.error = "tower", ""
        self.loaded: list[str] = []
        self.now = 0.0
        self.metrics = Metrics()
        self.batcher = Batcher(stub_served(Stub()), ServingLimits(), self.metrics)

    def read(self) -> str | None:
        if isinstance(self.version, Exception):
            raise self.version
        return self.version

    def load(self, version: str) -> Served:
        self.loaded.append(version)
        if self.error:
            raise InputError(self.error)
        return stub_served(Stub(), int(version), self.tower)

    def watch(self, alias: str = "champion", any_tower: bool = False, every: float = 5.0) -> Watch:
        return Watch(
            f"text-encoder@{alias}", self.read, self.load, self.batcher, self.metrics, any_tower=any_tower,
            every=every, clock=lambda: self.now, is_challenger=alias == "challenger",
        )  # fmt: skip

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_a_new_version_and_back_also_by_the_thread(registry: Registry) -> None:
    watch = registry.watch()
    watch.look()
    assert (registry.loaded, watch.problem) == ([], "")
    for version in ("2", "1", "10"):
        registry.version = version
        watch.look()
        assert registry.batcher.served.id == f"text-encoder/{version}"
    info = {"model": "text-encoder/10", "sha256": "sha10", "image_tower_sha256": "tower"}
    assert registry.metric("cliptune_model_info", **info) == 1
    assert registry.metric("cliptune_model_info", **info | {"model": "text-encoder/2", "sha256": "sha2"}) is None
    watch = registry.watch(every=0.01)
    watch.start()
    registry.version = "2"
    wait_until(lambda: registry.batcher.served.id == "text-encoder/2")
    watch.stop()


def test_the_alias_of_a_challenger_is_watched_by_itself(registry: Registry) -> None:
    registry.batcher.challenger = stub_served(Stub(), 2)
    champion, challenger = registry.watch(), registry.watch("challenger")
    registry.version = "3"
    challenger.look()
    assert [one.id for one in registry.batcher.all] == ["text-encoder/1", "text-encoder/3"]
    registry.tower, registry.version = "another", "4"
    challenger.look()
    assert registry.batcher.all[1].id == "text-encoder/3"
    assert "text-encoder/4 has another image tower" in challenger.problem
    # The state of one alias leaves that of the other.
    registry.version = "1"
    champion.look()
    assert registry.metric("cliptune_model_refused", alias="text-encoder@challenger") == 1
    assert registry.metric("cliptune_model_refused", alias="text-encoder@champion") == 0


def test_failing_loads_are_retried_with_backoff(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    watch = registry.watch()
    registry.version, registry.error = "2", "the files\nare gone"
    tries = []
    with caplog.at_level(logging.WARNING):
        for registry.now in range(0, 200, 5):
            before = len(registry.loaded)
            watch.look()
            tries += [registry.now] * (len(registry.loaded) - before)
    assert tries == [0, 5, 15, 35, 75, 155]
    assert registry.batcher.served.id == "text-encoder/1"
    # Anybody may read it; only the log says where the files were.
    assert watch.problem == "version 2 cannot be loaded: text-encoder/1 remains"
    assert f"{watch.problem} (the files are gone)" in caplog.text
    assert registry.metric("cliptune_model_load_failures_total", reason="failed") == 6
    assert registry.metric("cliptune_model_refused", alias="text-encoder@champion") == 1
    # Another version is tried at once.
    registry.version, registry.error = "3", ""
    watch.look()
    assert (registry.batcher.served.id, watch.problem) == ("text-encoder/3", "")
    assert registry.metric("cliptune_model_refused", alias="text-encoder@champion") == 0


def test_another_image_tower_is_refused_once(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    watch = registry.watch()
    registry.version, registry.tower = "2", "another tower"
    with caplog.at_level(logging.WARNING):
        for registry.now in (0, 1000, 2000):
            watch.look()
    assert registry.loaded == ["2"]
    assert registry.batcher.served.id == "text-encoder/1"
    assert watch.problem.startswith("text-encoder/2 has another image tower")
    assert registry.metric("cliptune_model_load_failures_total", reason="image_tower") == 1
    refusal = watch.problem
    # A registry that does not answer for a while does not change the refusal.
    for version, problem in (
        (OSError("away"), "the registry does not answer"), ("2", refusal), (None, "the alias is gone"), ("2", refusal),
        ("1", ""),
    ):  # fmt: skip
        registry.version = version
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            watch.look()
            watch.look()
        assert watch.problem == problem
        assert caplog.text.count(problem) == 1 or not problem
    assert registry.loaded == ["2"]
    registry.version = "2"
    registry.watch(any_tower=True).look()
    assert registry.batcher.served.id == "text-encoder/2"


def test_a_real_registry(tmp_path: Path, track_in: Callable[[Path], None], tiny_encoder: Encoder) -> None:
    track_in(tmp_path)
    with pytest.raises(InputError, match="text-encoder has no alias 'champion'"):
        Loading().first("text-encoder@champion")
    assert Alias.of("models:/mine@challenger") == Alias("mine", "challenger")
    assert Alias.of("text-encoder/3") is Alias.of("models/paraclip") is None
    champion = Alias("text-encoder", "champion")
    assert champion.version() is None
    first = register_champion(tiny_encoder)
    assert (champion.version(), Alias("text-encoder", "challenger").version()) == (first, None)
    torch.manual_seed(1)
    other = Encoder.create("other", "tiny", TINY, "test")
    other.model.visual.load_state_dict(tiny_encoder.model.visual.state_dict())
    second = register_champion(other, alias=None)
    served = Loading().first("text-encoder@champion")
    assert served.id == f"text-encoder/{first}"
    assert served.names == {served.id, "text-encoder", "text-encoder@champion"}
    assert Loading().first(f"models:/text-encoder/{second}").names == {f"text-encoder/{second}", "text-encoder"}
    served = Loading().version(champion, second)
    assert served.id == f"text-encoder/{second}"
    np.testing.assert_allclose(_answer(served, "a dog").vectors, other.embed_texts(["a dog"]), atol=1e-5)
