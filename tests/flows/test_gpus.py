"""GPU tokens: as many stages at once as there are GPUs, each on its own; without the limit nothing waits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from flows.gpus import gpu_tokens


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_no_more_stages_at_once_than_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect import get_client

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with gpu_tokens("train@a", 1) as devices:
        assert devices == {}
    monkeypatch.setenv("CLIPTUNE_GPU_LIMIT", "test-gpu")
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name("test-gpu", 2)
    with gpu_tokens("train@a", 2) as both:
        assert both == {"CUDA_VISIBLE_DEVICES": "3,5"}
    third = threading.Event()

    def wait() -> None:
        with gpu_tokens("evaluate@c", 8):
            third.set()

    with gpu_tokens("train@a", 1) as one:
        with gpu_tokens("train@b", 1) as two:
            assert [*one.values(), *two.values()] == ["3", "5"]
            thread = threading.Thread(target=wait)
            thread.start()
            with gpu_tokens("compare", 1) as none:
                assert none == {}
            assert not third.wait(2)
        assert third.wait(240)
    thread.join()
