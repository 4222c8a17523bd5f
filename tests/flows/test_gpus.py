"""As many stages at once as there are GPUs, each on its own; without GPUs nothing waits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from flows.gpus import own_gpus


def test_no_more_stages_at_once_than_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with own_gpus("train@a", 1) as devices:
        assert devices == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    for _ in range(2):
        with own_gpus("train@a", 8) as both:
            assert both == {"CUDA_VISIBLE_DEVICES": "3,5"}
    third = threading.Event()

    def wait() -> None:
        with own_gpus("evaluate@c", 8) as free:
            assert free == {"CUDA_VISIBLE_DEVICES": "5"}
            third.set()

    with own_gpus("train@a", 1) as one:
        with own_gpus("train@b", 1) as two:
            assert [*one.values(), *two.values()] == ["3", "5"]
            thread = threading.Thread(target=wait)
            thread.start()
            with own_gpus("compare", 1) as none:
                assert none == {}
            assert not third.wait(2)
        assert third.wait(60)
    thread.join()
