"""The synthesis benchmark measures every figure; speed is not tested."""

from __future__ import annotations

import json

import pytest

from benchmarks.synthesis import compare, measure, measure_real
from benchmarks.synthesis_servers import Rates, measure_servers, requests
from benchmarks.synthesis_store import Overhead
from components.core.system.errors import InputError
from tests.support.fake_llm_process import fake_llm

STORES = {
    "sqlite": Overhead(5.0, 4.0, {"look-ups": 0.25, "commits": 0.5}),
    "postgresql": Overhead(8.0, 4.0, {"commits": 2.0}),
}


@pytest.mark.integration
def test_every_figure_is_measured() -> None:
    found = measure(rows=20, latency=0.01, sequential_rows=4, concurrency=4, stored_rows=300, rate=5000.0)
    assert found == json.loads(json.dumps(found))
    assert found["rows_failed"] == 0
    assert min(found["rows_per_second_server"], found["rows_per_second_sequential"]) > 0
    assert found["stores"].keys() == {"sqlite", "postgresql"}
    for store in found["stores"].values():
        assert store["overhead_share"] < 1
        assert store["busy_share"] > 0
        assert store["milliseconds_per_1000_rows"].keys() == {"commits", "look-ups"}
        assert all(spent > 0 for spent in store["milliseconds_per_1000_rows"].values())


@pytest.mark.integration
def test_prompts_are_sent_once_and_all_but_the_first_count() -> None:
    with fake_llm() as server:
        assert measure_servers(server.url, "fake", rows=10, sequential_rows=3, concurrency=2).failed == 0
        # Two warm-up rows of the plain client, and two for each request in flight of the engine.
        assert server.control()["sent"] == 2 + 3 + 4 + 10
        server.control("set", model="another")
        with pytest.raises(InputError, match="HTTP 404"):
            measure_real(server.url, "fake", rows=2, concurrency=2)
    assert len({request.key for request in requests(50, "fake")}) == 50


def test_the_stores_share_is_the_larger_one() -> None:
    found = compare(Rates(sequential=2.0, server=50.0, failed=1), STORES, rows=1000)
    assert found["speedup_vs_sequential"] == 25
    assert found["store_overhead_share"] == 0.5
    sqlite = found["stores"]["sqlite"]
    assert sqlite["overhead_share"] == pytest.approx(0.2)
    assert sqlite["busy_share"] == pytest.approx(0.15)
    assert (sqlite["rows_per_second"], sqlite["rows_per_second_without_store"]) == (200, 250)
    assert sqlite["milliseconds_per_1000_rows"] == {"commits": 500, "look-ups": 250}
