"""A worker on a shared store, as a separate process: `python -m tests.faults.store_worker URL NAME QUESTIONS [STOP]`.

Every answer is the worker's name. After STOP answers it prints `stopped` within a batch and sleeps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

from more_itertools import batched

from components.captions.generating.asking import ask
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request
from tests.support.store_rows import replies, requests

BATCH = 16


class Engine:
    """Answers with a name."""

    model = "m"

    def __init__(self, name: str, stop_after: int | None) -> None:
        self.name, self.stop_after = name, stop_after

    def answer(self, wanted: Iterable[Request]) -> Iterator[list[Reply]]:
        """Answer batch by batch."""
        for number, batch in enumerate(batched(wanted, BATCH)):
            if self.stop_after is not None and number * BATCH >= self.stop_after:
                print("stopped", flush=True)
                time.sleep(3600)
            yield replies(batch, self.name)


def main() -> None:
    """Answer all questions, and print the numbers of replayed and generated answers."""
    url, name, count, *stop_after = sys.argv[1:]
    engine = Engine(name, int(stop_after[0]) if stop_after else None)
    counts = ask(GenerationStore(url), engine, requests(int(count)), name, int(count))
    print(counts.replayed, counts.generated, flush=True)


if __name__ == "__main__":
    main()
