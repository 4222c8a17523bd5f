"""The query expansion benchmark expands by what the engine says; what comes out, only a run of minutes can say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.query_expansion import EXPANSIONS, expansions
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request


class Rewriter:
    """Every attempt has another answer, but the last repeats the one before; counts requests."""

    model = "rewriter"

    def __init__(self) -> None:
        self.asked = 0

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for request in requests:
            self.asked += 1
            text = request.chat[-1][1].rpartition(": ")[2]
            yield [Reply(request, f"{text} again {min(request.attempt, EXPANSIONS - 2)}")]


def test_each_text_has_one_request_and_repeated_answers_count_once(tmp_path: Path) -> None:
    store, engine = GenerationStore(f"sqlite:///{tmp_path}/store.db"), Rewriter()
    found = expansions(["a dog", "a cat", "a dog"], engine, store)
    assert found == {text: [f"{text} again 0", f"{text} again 1"] for text in ("a dog", "a cat")}
    assert engine.asked == 2 * EXPANSIONS
    assert expansions(["a dog"], engine, store) == {"a dog": found["a dog"]}
    assert engine.asked == 2 * EXPANSIONS
    store.close()
