"""GPU tokens: as many stages at once as there are GPUs, each on its own; without the limit nothing waits."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from flows.gpus import _take, gpu_tokens, gpus


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")


@pytest.mark.usefixtures("two_gpus")
def test_devices_are_held_one_by_one_and_given_back() -> None:
    assert gpus() == ["3", "5"]
    with ExitStack() as first:
        assert _take(gpus(), 1, first) == ["3"]
        with ExitStack() as second:
            assert _take(gpus(), 1, second) == ["5"]
        with ExitStack() as third:
            assert _take(gpus(), 1, third) == ["5"]
    with ExitStack() as both:
        assert _take(gpus(), 2, both) == ["3", "5"]


@pytest.mark.integration
@pytest.mark.usefixtures("two_gpus", "prefect_server")
def test_no_more_stages_at_once_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect import get_client

    with gpu_tokens("train@a", 1) as devices:
        assert devices == {}
    monkeypatch.setenv("CLIPTUNE_GPU_LIMIT", "test-gpu")
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name("test-gpu", 2)
    third = threading.Event()

    def wait() -> None:
        with gpu_tokens("evaluate@c", 8):
            third.set()

    with gpu_tokens("train@a", 1) as one:
        with gpu_tokens("train@b", 1) as two:
            assert (one, two) == ({"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "5"})
            thread = threading.Thread(target=wait)
            thread.start()
            with gpu_tokens("compare", 1) as none:
                assert none == {}
            assert not third.wait(2)
        assert third.wait(240)
    thread.join()
