"""How much faster is the engine `server` than a plain sequential client, and what does the generation store cost?

Both send to the same server: one that takes a fixed time for each answer and, with --real, a real one. The store is
measured with an engine in this process that gives 1,000 rows/s, which is more than most GPUs do. The last line is one
JSON object.

    python -m benchmarks.synthesis --real
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.synthesis_servers import Rates, measure_servers
from benchmarks.synthesis_store import Overhead, measure_store
from components.captions.students.save_model import save_model
from components.core.system.errors import InputError, run_command
from tests.integration.postgres import running_postgres
from tests.integration.vllm_server import PYTHON, run_vllm_server
from tests.support.fake_llm_process import fake_llm

REAL_SEQUENTIAL_ROWS = 8


def measure(
    rows: int, latency: float, sequential_rows: int, concurrency: int, stored_rows: int, rate: float
) -> dict[str, Any]:
    """Everything but the real server.

    Args:
        rows: requests of the engine.
        latency: seconds that the fake server takes for each answer.
        sequential_rows: requests of the sequential client.
        concurrency: requests in flight.
        stored_rows: how many the store keeps.
        rate: rows per second of the engine that fills the store.
    """
    with fake_llm("--latency", str(latency)) as server:
        rates = measure_servers(server.url, "fake", rows, sequential_rows, concurrency)
    with tempfile.TemporaryDirectory(prefix="synthesis-benchmark-") as folder, running_postgres() as postgres:
        urls = {"sqlite": f"sqlite:///{folder}/store.db", "postgresql": postgres.new_database()}
        stores = {name: measure_store(url, stored_rows, rate, concurrency) for name, url in urls.items()}
    return {"concurrency": concurrency, "latency_s": latency} | compare(rates, stores, stored_rows)


def compare(rates: Rates, stores: dict[str, Overhead], rows: int) -> dict[str, Any]:
    """The figures; the store's share is the larger one of the databases'."""
    return {
        "speedup_vs_sequential": rates.speedup,
        "rows_per_second_server": rates.server,
        "rows_per_second_sequential": rates.sequential,
        "rows_failed": rates.failed,
        "store_overhead_share": max(store.share for store in stores.values()),
        "stores": {
            name: {
                "overhead_share": store.share,
                "busy_share": store.busy_share,
                "rows_per_second": rows / store.with_store,
                "rows_per_second_without_store": rows / store.without_store,
                "milliseconds_per_1000_rows": {
                    kind: 1e6 * seconds / rows for kind, seconds in sorted(store.inside.items())
                },
            }
            for name, store in stores.items()
        },
        "real": None,
    }


def measure_real(url: str | None, model: str | None, rows: int, concurrency: int) -> dict[str, Any]:
    """Both clients on a real server: the one at `url`, or vLLM with SmolLM2, started here.

    Raises:
        InputError: a URL without a model, or the environment of vLLM is missing.
    """
    if url is not None and model is None:
        raise InputError("--url needs --model: give the name that the server calls its model")
    with _vllm() if url is None else _at(url, model or "") as (where, name):
        rates = measure_servers(where, name, rows, REAL_SEQUENTIAL_ROWS, concurrency)
    return {
        "model": name,
        "speedup_vs_sequential": rates.speedup,
        "rows_per_second_server": rates.server,
        "rows_per_second_sequential": rates.sequential,
        "rows_failed": rates.failed,
    }


@contextmanager
def _at(url: str, model: str) -> Iterator[tuple[str, str]]:
    yield url, model


@contextmanager
def _vllm() -> Iterator[tuple[str, str]]:
    if not PYTHON.is_file():
        raise InputError("--real needs vLLM's environment: run `make llm-server`, or give --url and --model")
    with tempfile.TemporaryDirectory(prefix="synthesis-benchmark-") as folder:
        save_model(Path(folder) / "model", None, torch.float32)
        with run_vllm_server(Path(folder) / "model", Path(folder)) as server:
            yield server.url, server.model


def show(found: dict[str, Any], console: Console) -> None:
    """The comparison, and the store's cost, as tables."""
    title = f"rows/s with {found['concurrency']} requests in flight"
    speeds = Table("server", "sequential client", "engine `server`", "", title=title)
    measured = {f"{1000 * found['latency_s']:g} ms for each answer": found}
    if found["real"] is not None:
        measured[found["real"]["model"]] = found["real"]
    for name, rates in measured.items():
        both = [f"{rates[f'rows_per_second_{side}']:.2f}" for side in ("sequential", "server")]
        speeds.add_row(name, *both, f"{rates['speedup_vs_sequential']:.1f} times as fast")
    console.print(speeds)
    stores = Table("store", "longer than without", "busy", "rows/s", "ms per 1,000 rows")
    for name, store in found["stores"].items():
        parts = ", ".join(f"{kind} {spent:.1f}" for kind, spent in store["milliseconds_per_1000_rows"].items())
        shares = [f"{100 * store[share]:.1f}%" for share in ("overhead_share", "busy_share")]
        stores.add_row(name, *shares, f"{store['rows_per_second']:.0f}", parts)
    console.print(stores)


def main(
    rows: Annotated[int, typer.Option(help="Rows that the engine sends to the fake server.")] = 2000,
    latency: Annotated[float, typer.Option(help="Seconds that the fake server takes for each answer.")] = 0.2,
    sequential_rows: Annotated[int, typer.Option(help="Rows that the sequential client sends to it.")] = 50,
    concurrency: Annotated[int, typer.Option(help="Requests in flight, and rows of a commit.")] = 32,
    stored_rows: Annotated[int, typer.Option(help="Rows that the store keeps.")] = 10_000,
    rate: Annotated[float, typer.Option(help="Rows/s of the engine that fills the store.")] = 1000.0,
    real: Annotated[bool, typer.Option("--real", help="Also ask a real server: vLLM with SmolLM2, or --url.")] = False,
    real_rows: Annotated[int, typer.Option(help="Rows that the engine sends to the real server.")] = 64,
    url: Annotated[str | None, typer.Option(help="Base URL of a real server that runs already.")] = None,
    model: Annotated[str | None, typer.Option(help="The server's name of its model.")] = None,
) -> None:
    """Compare the engine `server` with a plain client, and measure the cost of the store.

    python -m benchmarks.synthesis

    python -m benchmarks.synthesis --real

    python -m benchmarks.synthesis --url http://127.0.0.1:8000/v1 --model qwen --concurrency 256 --real-rows 5000
    """

    def command() -> None:
        found = measure(rows, latency, sequential_rows, concurrency, stored_rows, rate)
        if real or url is not None:
            found["real"] = measure_real(url, model, real_rows, concurrency)
        show(found, Console())
        print(json.dumps(found))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
