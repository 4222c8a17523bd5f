"""The engine `server` against the real OpenAI-compatible server of vLLM."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from components.captions.generating.client import ServerOptions
from components.captions.generating.engines.server import ServerEngine
from tests.integration.vllm_server import VllmServer, greedy_requests

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


def test_its_answers_are_those_of_the_same_weights_here(
    vllm_server: VllmServer, greedy_answers: Mapping[tuple[tuple[str, str], ...], str | None]
) -> None:
    engine = ServerEngine(ServerOptions(urls=(vllm_server.url,), model=vllm_server.model))
    requests = greedy_requests(engine.model)
    replies = [reply for batch in engine.answer(iter(requests)) for reply in batch]
    assert sorted(reply.request.key for reply in replies) == sorted(request.key for request in requests)
    assert [reply.failure for reply in replies] == [None] * len(requests)
    equal = sum(reply.answer == greedy_answers[reply.request.chat] for reply in replies)
    # Two programs sum in different orders, so that now and then the likeliest token is another one.
    assert equal >= 0.75 * len(requests)
