"""A worker on a shared store, as a process of its own: it asks all questions that nobody else asks.

Its engine appends the keys of a batch to a log before it answers them. After its first batch it waits until the other
worker has a log of as many bytes as it is told, so that both have a share however slow one of them starts; told to, it
stops in the midst of a batch and says so.

    python -m tests.faults.store_worker URL QUESTIONS LOG OTHER_LOG OTHER_BYTES [STOP_AFTER]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from more_itertools import batched

from components.captions.asking.asking import ask
from components.captions.request import Reply, Request
from components.captions.store import GenerationStore
from tests.support.store_rows import keys, requests

BATCH = 16


class Engine:
    """Answers with the name of the log."""

    model = "m"

    def __init__(self, log: Path, other: Path, other_bytes: int, stop_after: int | None) -> None:
        self.log, self.other, self.other_bytes, self.stop_after = log, other, other_bytes, stop_after

    def answer(self, wanted: Iterable[Request]) -> Iterator[list[Reply]]:
        """Log, then answer."""
        done, end = 0, time.monotonic() + 120
        for batch in batched(wanted, BATCH):
            with self.log.open("ab") as log:
                log.write("".join(f"{key}\n" for key in keys(batch)).encode())
            done += len(batch)
            while not (self.other.exists() and self.other.stat().st_size >= self.other_bytes):
                if time.monotonic() > end:
                    sys.exit("the other worker did not come")
                time.sleep(0.01)
            if self.stop_after is not None and done > self.stop_after:
                print("stopped", flush=True)
                time.sleep(3600)
            yield [Reply(request, self.log.name) for request in batch]


def main() -> None:
    """Ask, and print how many questions were replayed and generated."""
    url, count, log, other, other_bytes, *stop_after = sys.argv[1:]
    engine = Engine(Path(log), Path(other), int(other_bytes), int(stop_after[0]) if stop_after else None)
    asked = ask(GenerationStore(url), engine, requests(int(count)), os.path.basename(log), int(count))
    print(asked.replayed, asked.generated, flush=True)


if __name__ == "__main__":
    main()
