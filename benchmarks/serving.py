"""How many requests per second does `cliptune serve` answer, and how many `mlflow models serve` with the same champion?

Both run at the same time on this machine and get requests in turn, one text each, by clients in a process of their
own. Vectors are not kept between requests (`--cache 0`), although a search's queries repeat. Then ten times as many
clients ask a server that lets few texts wait: each answer must be right or status 429. The champion is this checkout's
if there is one, else a model of the synthetic dataset's size with random weights. The last line is one JSON object.

    python -m benchmarks.serving
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.request import urlopen

import numpy as np
import numpy.typing as npt
import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.serving_client import Job, Outcome, run_clients
from benchmarks.training_data import captions
from components.core.system.errors import run_command
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from components.registry.encoder_lookup import find_encoder
from components.registry.model import CHAMPION
from components.serving.served import Alias
from components.tracking import tracking_uri
from tests.integration.conftest import free_ports
from tests.support.mlflow_servers import running
from tests.support.serving_registry import MODEL, register_champion

CHAMPION_NAME = f"{MODEL}@{CHAMPION}"
OVERLOAD, OVERLOAD_QUEUE, WARM_UP_S = 10, 256, 1.0


@dataclass(frozen=True)
class Servers:
    """Ports of the servers."""

    ours: int
    small_queue: int
    mlflow: int

    def job(self, ours: bool, texts: list[str], clients: int, seconds: float, port: int | None = None) -> Job:
        """What clients ask one of them."""
        if ours:
            return Job(port or self.ours, "/v1/embeddings", "input", {"model": CHAMPION_NAME}, texts, clients, seconds)
        return Job(self.mlflow, "/invocations", "inputs", {}, texts, clients, seconds)


def measure(folder: Path, clients: int, seconds: float, rounds: int, texts: int) -> dict[str, Any]:
    """Ask both servers, then overload ours.

    Args:
        clients: how many ask at the same time.
        seconds: how long a round is, for each server.
        rounds: how often both get requests, in turn.
        texts: how many different ones there are.
    """
    wanted = list(dict.fromkeys(captions(texts, seed=0)))
    under_test = find_encoder(CHAMPION_NAME)
    known = dict(zip(wanted, under_test.encoder.embed_texts(wanted), strict=True))
    runs: list[tuple[Outcome, Outcome]] = []
    with servers(folder) as found:
        for ours in (True, False):
            run_clients(found.job(ours, wanted, clients, WARM_UP_S), folder)
        for _ in range(rounds):
            answered = [run_clients(found.job(ours, wanted, clients, seconds), folder) for ours in (True, False)]
            runs.append((answered[0], answered[1]))
        job = found.job(True, wanted, OVERLOAD * clients, seconds, found.small_queue)
        overloaded = run_clients(job, folder)
        alive = _alive(found.small_queue)
    facts = {"clients": clients, "texts": len(wanted), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return facts | compare(runs, known) | tell_overload(overloaded, alive, known)


def compare(runs: list[tuple[Outcome, Outcome]], known: dict[str, npt.NDArray[np.float32]]) -> dict[str, Any]:
    """Both servers' figures; medians over rounds."""
    ours, mlflow = ([sides[side] for sides in runs] for side in (0, 1))
    return {
        "requests_per_second": statistics.median(one.rate for one in ours),
        "requests_per_second_mlflow": statistics.median(one.rate for one in mlflow),
        "speedup_vs_mlflow_serve": statistics.median(one.rate / other.rate for one, other in runs),
        "p50_ms": statistics.median(one.percentile(50) for one in ours),
        "p95_ms": statistics.median(one.percentile(95) for one in ours),
        "p50_ms_mlflow": statistics.median(one.percentile(50) for one in mlflow),
        "p95_ms_mlflow": statistics.median(one.percentile(95) for one in mlflow),
        "largest_difference": max(one.largest_difference(known) for one in ours),
        "largest_difference_mlflow": max(one.largest_difference(known) for one in mlflow),
        "not_answered": sum(_not_answered(one) for one in ours),
        "not_answered_mlflow": sum(_not_answered(one) for one in mlflow),
    }


def tell_overload(found: Outcome, alive: bool, known: dict[str, npt.NDArray[np.float32]]) -> dict[str, Any]:
    """What became of the overloaded server and its answers."""
    return {
        "overload_answered": found.statuses.get("200", 0),
        "overload_refused": found.statuses.get("429", 0),
        "overload_other": _not_answered(found) - found.statuses.get("429", 0),
        "overload_largest_difference": found.largest_difference(known),
        "overload_alive": alive,
    }


def _not_answered(found: Outcome) -> int:
    return found.lost + sum(count for status, count in found.statuses.items() if status != "200")


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    """All servers with the champion of the current folder's registry, up and answering."""
    ports = Servers(*free_ports(3))
    environment = {"MLFLOW_TRACKING_URI": _absolute(tracking_uri()), "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "components.cli", "serve", "--encoder", CHAMPION_NAME]
    command += ["--cache", "0", "--port"]
    mlflow = ["mlflow", "models", "serve", "-m", f"models:/{CHAMPION_NAME}", "--env-manager", "local"]
    mlflow += ["--host", "127.0.0.1", "--port", str(ports.mlflow)]
    small_queue = [*command, str(ports.small_queue), "--max-queue", str(OVERLOAD_QUEUE)]
    with ExitStack() as stack:
        for name, line, health in (
            ("ours", [*command, str(ports.ours)], f"http://127.0.0.1:{ports.ours}/health"),
            ("small_queue", small_queue, f"http://127.0.0.1:{ports.small_queue}/health"),
            ("mlflow", mlflow, f"http://127.0.0.1:{ports.mlflow}/ping"),
        ):
            stack.enter_context(running(line, health, folder / name, environment))
        yield ports


def _absolute(uri: str) -> str:
    scheme = "sqlite:///"
    return f"{scheme}{Path(uri.removeprefix(scheme)).resolve()}" if uri.startswith(scheme) else uri


def _alive(port: int) -> bool:
    with urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
        return bool(json.load(answer)["ready"])


@contextmanager
def registry(folder: Path) -> Iterator[None]:
    """A registry with a champion: this checkout's if it has one, else a new one in `folder`."""
    if Alias(MODEL, CHAMPION).version() is not None:
        yield
        return
    torch.manual_seed(0)
    size = "cliptune-tiny"
    with chdir(folder):
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / 'mlflow.db'}"
        register_champion(Encoder.create("base", size, model_config(size), "random"))
        yield


def show(found: dict[str, Any], console: Console) -> None:
    """Both servers side by side, and the overload."""
    table = Table("", "mlflow models serve", "cliptune serve", title=f"{found['clients']} clients, one text a request")
    for row, key in (("requests/s", "requests_per_second"), ("median, ms", "p50_ms"), ("95%, ms", "p95_ms")):
        table.add_row(row, f"{found[f'{key}_mlflow']:.1f}", f"{found[key]:.1f}")
    console.print(table)
    console.print(
        f"{found['speedup_vs_mlflow_serve']:.1f} times as many; {OVERLOAD} times as many clients: "
        f"{found['overload_answered']} answered, {found['overload_refused']} refused, {found['overload_other']} else"
    )


def main(
    clients: Annotated[int, typer.Option(help="How many ask at the same time.")] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds of requests to each server in a round.")] = 10,
    rounds: Annotated[int, typer.Option(help="How often both get requests, in turn.")] = 3,
    texts: Annotated[int, typer.Option(help="How many captions are drawn.")] = 4000,
) -> None:
    """Compare `cliptune serve` with `mlflow models serve` on one machine.

    python -m benchmarks.serving

    python -m benchmarks.serving --clients 8 --seconds 2 --rounds 1
    """

    def command() -> None:
        os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
        with tempfile.TemporaryDirectory(prefix="serving-benchmark-") as name, registry(Path(name)):
            found = measure(Path(name), clients, seconds, rounds, texts)
        show(found, Console())
        print(json.dumps(found))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
