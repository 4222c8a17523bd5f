"""A new version is served if it fits; if not, the old one stays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.serving.address import ServingLimits
from components.serving.batches import Batcher
from components.serving.messages import EmbeddingRequest
from components.serving.metrics import Metrics
from components.serving.served import Alias, Served, load_first, load_version
from components.serving.watch import Watch
from tests.conftest import TINY
from tests.support.serving import Stub, stub_served, wait_until
from tests.support.serving_registry import register_champion


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

    def watch(self, any_tower: bool = False, every: float = 5.0) -> Watch:
        return Watch(
            self.read, self.load, self.batcher, self.metrics, any_tower=any_tower, every=every, clock=lambda: self.now
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_a_new_version_and_back(registry: Registry) -> None:
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
    assert registry.metric("cliptune_model_refused") == 1
    # Another version is tried at once.
    registry.version, registry.error = "3", ""
    watch.look()
    assert (registry.batcher.served.id, watch.problem) == ("text-encoder/3", "")
    assert registry.metric("cliptune_model_refused") == 0


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


def test_the_thread_looks_by_itself(registry: Registry) -> None:
    watch = registry.watch(every=0.01)
    watch.start()
    registry.version = "2"
    wait_until(lambda: registry.batcher.served.id == "text-encoder/2")
    watch.stop()


def test_a_real_registry(tmp_path: Path, track_in: Callable[[Path], None], tiny_encoder: Encoder) -> None:
    track_in(tmp_path)
    with pytest.raises(InputError, match="text-encoder has no alias 'champion'"):
        load_first("text-encoder@champion", 0)
    first = register_champion(tiny_encoder)
    torch.manual_seed(1)
    other = Encoder.create("other", "tiny", TINY, "test")
    other.model.visual.load_state_dict(tiny_encoder.model.visual.state_dict())
    second = register_champion(other, alias=None)
    served = load_first("text-encoder@champion", 0)
    assert served.id == f"text-encoder/{first}"
    assert served.names == {served.id, "text-encoder", "text-encoder@champion"}
    assert load_first(f"models:/text-encoder/{second}", 0).names == {f"text-encoder/{second}", "text-encoder"}
    served = load_version(Alias("text-encoder", "champion"), second, 0)
    assert served.id == f"text-encoder/{second}"
    (answer,) = served.embed([EmbeddingRequest(input="a dog")])
    np.testing.assert_allclose(answer.vectors, other.embed_texts(["a dog"]), atol=1e-5)
