"""The engine `vllm` with the real vLLM in a separate environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from components.captions.generating.engines.vllm import VllmEngine, VllmOptions
from components.captions.prompting.request import Request
from tests.integration.vllm_server import greedy_requests, require_vllm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


def test_its_answers_are_those_of_the_local_engine(
    smollm2: Path, greedy_answers: Mapping[tuple[tuple[str, str], ...], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second thread hardly helps with so few requests, and on a busy machine threads wait for each other.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = {"dtype": "float32", "max_model_len": 1024, "concurrency": 5}
    engine = VllmEngine(VllmOptions.model_validate({"model": str(smollm2), "python": require_vllm(), **options}))
    requests = greedy_requests(engine.model)
    too_long = Request("t", (("user", "dog " * 2000),), engine.model, requests[0].sampling, 0)
    batches = list(engine.answer([*requests, too_long]))
    replies = {reply.request: reply for batch in batches for reply in batch}
    assert sum(len(batch) for batch in batches) == len(replies) == len(requests) + 1
    assert [replies[request].failure for request in requests] == [None] * len(requests)
    refused = replies[too_long]
    assert refused.answer is None
    assert refused.failure is not None
    assert "1024" in refused.failure
    equal = sum(replies[request].answer == greedy_answers[request.chat] for request in requests)
    # Two programs sum in different orders, so that the likeliest token sometimes differs.
    assert equal >= 0.75 * len(requests)
