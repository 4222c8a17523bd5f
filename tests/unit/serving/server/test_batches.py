"""Requests are embedded together, each gets its own response, and none is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from components.serving.server.address import ServingLimits
from components.serving.server.batches import Batcher, Metrics
from components.serving.server.messages import ApiError, EmbeddingRequest, EncodeResponse
from tests.support.serving import Stub, stub_served, vector_of, wait_until

LIMITS = ServingLimits(texts=4, batch=4, queue=6)


@pytest.fixture
def stub() -> Stub:
    """The encoder of the served version."""
    return Stub()


def _request(*texts: str, model: str | None = None) -> EmbeddingRequest:
    return EmbeddingRequest(input=list(texts), model=model)


def batched(work: Callable[[Stub, Batcher], Awaitable[None]]) -> Callable[[Stub], None]:
    """A test of a running batcher, which stops at its end."""

    def test(stub: Stub) -> None:
        async def run() -> None:
            batcher = Batcher(stub_served(stub), LIMITS, Metrics())
            batcher.start()
            try:
                await asyncio.wait_for(work(stub, batcher), 30)
            finally:
                stub.go.set()
                await asyncio.to_thread(batcher.stop)

        asyncio.run(run())

    return test


async def _hold(stub: Stub, batcher: Batcher) -> asyncio.Future[EncodeResponse]:
    """Keep the worker busy with one text, so that what comes next waits."""
    stub.go.clear()
    first = batcher.submit(_request("first"))
    await asyncio.to_thread(wait_until, stub.busy.is_set)
    return first


def _check(answer: EncodeResponse, *texts: str) -> None:
    np.testing.assert_array_equal(np.stack(answer.vectors), np.stack([vector_of(text) for text in texts]))
    assert answer.tokens == sum(len(text.split()) for text in texts)


@batched
async def test_waiting_requests_share_batches_and_a_full_queue_refuses(stub: Stub, batcher: Batcher) -> None:
    requests = [["first"], ["a b", "c"], ["d"], ["c"], ["e"]]
    answers = [await _hold(stub, batcher), *(batcher.submit(_request(*texts)) for texts in requests[1:])]
    assert batcher._metrics.registry.get_sample_value("cliptune_queue_texts") == 5
    with pytest.raises(ApiError) as caught:
        batcher.submit(_request("f", "g"))
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (429, "overloaded", 1)
    stub.go.set()
    for texts, answer in zip(requests, answers, strict=True):
        _check(await answer, *texts)
    # Four texts are a batch; a text that two clients sent is computed once.
    assert stub.asked == [["first"], ["a b", "c", "d"], ["e"]]


@batched
async def test_waiting_requests_are_tokenized_while_a_batch_is_embedded(stub: Stub, batcher: Batcher) -> None:
    first, second, left = await _hold(stub, batcher), batcher.submit(_request("a b")), batcher.submit(_request("c"))
    await asyncio.to_thread(wait_until, lambda: len(stub.tokenized) == 3)
    assert stub.asked == [["first"]]
    left.cancel()
    # The event loop drops it; the next batch must not form before.
    await asyncio.sleep(0)
    stub.go.set()
    _check(await first, "first")
    _check(await second, "a b")
    assert (stub.tokenized, stub.asked) == ([["first"], ["a b"], ["c"]], [["first"], ["a b"]])


@batched
async def test_an_idle_worker_does_not_wait_a_large_request_is_one_batch_and_single_words_are_counted(
    stub: Stub, batcher: Batcher
) -> None:
    for text in "abc":
        _check(await batcher.submit(_request(text)), text)
    _check(await batcher.submit(_request(*"defgh")), *"defgh")
    assert stub.asked == [["a"], ["b"], ["c"], list("defgh")]
    await batcher.submit(_request("a b", "c", "d e"))
    assert batcher._metrics.registry.get_sample_value("cliptune_one_word_texts_total") == 8 + 1


@batched
async def test_a_text_that_fails_costs_only_its_own_request(stub: Stub, batcher: Batcher) -> None:
    await _hold(stub, batcher)
    good, bad, other = (batcher.submit(_request(text)) for text in ("a", "fail", "b"))
    stub.go.set()
    _check(await good, "a")
    _check(await other, "b")
    with pytest.raises(ApiError) as caught:
        await bad
    refusal = (caught.value.status, caught.value.code, caught.value.message)
    assert refusal == (500, "internal_error", "The server failed to answer.")
    _check(await batcher.submit(_request("c")), "c")


@batched
async def test_a_version_answers_only_to_its_names(stub: Stub, batcher: Batcher) -> None:
    for name in ("text-encoder/1", "text-encoder", "text-encoder@champion"):
        assert (await batcher.submit(_request("a", model=name))).model == "text-encoder/1"
    for request, code in (
        (_request("a", model="text-encoder/2"), "model_not_found"),
        (EmbeddingRequest(input="a", dimensions=5), "invalid_value"),
    ):
        with pytest.raises(ApiError) as caught:
            await batcher.submit(request)
        assert caught.value.code == code
    _check(await batcher.submit(EmbeddingRequest(input="a", dimensions=4)), "a")


@batched
async def test_a_challenger_answers_to_its_names_and_the_first_version_to_all_others(
    stub: Stub, batcher: Batcher
) -> None:
    challenger = replace(stub_served(stub, 2), names=frozenset({"text-encoder/2", "text-encoder@challenger"}))
    batcher.challenger = challenger
    names = ["text-encoder@challenger", "text-encoder", None, "text-encoder/2"]
    answers = [await one for one in [batcher.submit(_request("a", model=name)) for name in names]]
    assert [one.model.rpartition("/")[2] for one in answers] == ["2", "1", "1", "2"]


@batched
async def test_accepted_requests_are_answered_before_the_stop(stub: Stub, batcher: Batcher) -> None:
    first = await _hold(stub, batcher)
    # A version that was loaded in between answers from the next batch on.
    batcher.served = stub_served(Stub(), 2)
    second = batcher.submit(_request("a"))
    stopping = threading.Thread(target=batcher.stop)
    stopping.start()
    await asyncio.to_thread(wait_until, lambda: batcher._stopping)
    with pytest.raises(ApiError, match="stopping"):
        batcher.submit(_request("b"))
    assert batcher.alive
    stub.go.set()
    _check(await first, "first")
    _check(await second, "a")
    assert [(await one).model for one in (first, second)] == ["text-encoder/1", "text-encoder/2"]
    await asyncio.to_thread(stopping.join)
    assert not batcher.alive
