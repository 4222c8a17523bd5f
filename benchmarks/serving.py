"""How many requests per second does `cliptune serve` answer, and how many `mlflow models serve` with the same champion?

All servers, ours in each precision, run at the same time and get requests in turn, one text each, by
clients in a process of their own. Vectors are not kept between requests (`--cache 0`), although queries
repeat. One client then measures the latency of a single query. At last ten times as many clients ask a server that
lets few texts wait: each answer must be right or status 429. The champion is this checkout's if there is one, else a
model of the synthetic dataset's size with random weights. The last line is one JSON object.

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
from components.core.compute.metrics import average_overlap
from components.core.system.errors import run_command
from components.core.tracking import tracking_uri
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from components.registry.encoder_lookup import find_encoder
from components.registry.export import ao_loss
from components.registry.model import CHAMPION
from components.serving.server.served import Alias
from tests.support.mlflow_servers import running
from tests.support.ports import free_ports
from tests.support.serving_registry import MODEL, register_champion

CHAMPION_NAME = f"{MODEL}@{CHAMPION}"
PRECISIONS = ("fp32", "bf16", "int8")
OVERLOAD, OVERLOAD_QUEUE, WARM_UP_S = 10, 256, 1.0


@dataclass(frozen=True)
class Servers:
    """Ports of the servers; those of ours by precision."""

    ours: dict[str, int]
    small_queue: int
    mlflow: int

    def job(self, side: str, texts: list[str], clients: int, seconds: float) -> Job:
        """What clients ask one of them: `mlflow`, `small_queue`, or a precision of ours."""
        if side == "mlflow":
            return Job(self.mlflow, "/invocations", "inputs", {}, texts, clients, seconds)
        port = self.ours.get(side, self.small_queue)
        return Job(port, "/v1/embeddings", "input", {"model": CHAMPION_NAME}, texts, clients, seconds)


def measure(folder: Path, clients: int, seconds: float, rounds: int, texts: int) -> dict[str, Any]:
    """Ask all servers, then overload one of ours.

    Args:
        clients: how many ask at the same time.
        seconds: how long a round is, for each server.
        rounds: how often all get requests, in turn.
        texts: how many different ones there are.
    """
    wanted = list(dict.fromkeys(captions(texts, seed=0)))
    under_test = find_encoder(CHAMPION_NAME)
    known = dict(zip(wanted, under_test.encoder.embed_texts(wanted), strict=True))
    sides = ("mlflow", *PRECISIONS)
    runs: dict[str, list[Outcome]] = {side: [] for side in sides}
    with servers(folder) as found:
        for side in sides:
            run_clients(found.job(side, wanted, clients, WARM_UP_S), folder)
        for _ in range(rounds):
            for side in sides:
                runs[side].append(run_clients(found.job(side, wanted, clients, seconds), folder))
        alone = {side: run_clients(found.job(side, wanted, 1, seconds), folder).percentile(50) for side in sides}
        overloaded = run_clients(found.job("small_queue", wanted, OVERLOAD * clients, seconds), folder)
        alive = _alive(found.small_queue)
    pairs = {one: list(zip(runs[one], runs["mlflow"], strict=True)) for one in PRECISIONS}
    facts = {"clients": clients, "texts": len(wanted), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    facts |= compare(pairs["fp32"], known) | tell_overload(overloaded, alive, known)
    precisions = {one: precision_row(one, pairs[one], known) | {"p50_ms_alone": alone[one]} for one in PRECISIONS}
    return facts | {"p50_ms_alone_mlflow": alone["mlflow"], "precisions": precisions}


def precision_row(
    precision: str, runs: list[tuple[Outcome, Outcome]], known: dict[str, npt.NDArray[np.float32]]
) -> dict[str, Any]:
    """Speed of our server in a precision, and the cost of that precision: in cosine to float32, and in AO@10.

    `top_ten_overlap` is AO@10 of each text's nearest other texts with those in float32; `ao` is the change of
    paraphrased retrieval, None in a checkout without its test data.
    """
    encoder = find_encoder(CHAMPION_NAME, precision=precision).encoder
    exact = np.stack(list(known.values()))
    rounded = encoder.embed_texts(list(known))
    cosines = (exact * rounded).sum(axis=1)
    top_tens = [np.argsort(-(vectors @ exact.T), axis=1)[:, 1:11] for vectors in (exact, rounded)]
    row = {name: compare(runs, known)[name] for name in ("requests_per_second", "speedup_vs_mlflow_serve", "p50_ms")}
    return row | {
        "cosine_mean": float(cosines.mean()),
        "cosine_least": float(cosines.min()),
        "top_ten_overlap": float(average_overlap(*top_tens, 10).mean()),
        "ao": ao_loss(find_encoder(CHAMPION_NAME).encoder, encoder.embed_texts),
        "not_answered": sum(_not_answered(ours) for ours, _ in runs),
    }


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
    small, mlflow_port, *ours = free_ports(2 + len(PRECISIONS))
    ports = Servers(dict(zip(PRECISIONS, ours, strict=True)), small, mlflow_port)
    environment = {"MLFLOW_TRACKING_URI": _absolute(tracking_uri()), "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "components.cli", "serve", "--encoder", CHAMPION_NAME]
    command += ["--cache", "0", "--port"]
    mlflow = ["mlflow", "models", "serve", "-m", f"models:/{CHAMPION_NAME}", "--env-manager", "local"]
    mlflow += ["--host", "127.0.0.1", "--port", str(ports.mlflow)]
    small_queue = [*command, str(ports.small_queue), "--max-queue", str(OVERLOAD_QUEUE)]
    lines = {one: [*command, str(port), "--precision", one] for one, port in ports.ours.items()}
    lines["small_queue"] = small_queue
    with ExitStack() as stack:
        for name, line in lines.items():
            health = f"http://127.0.0.1:{ports.ours.get(name, ports.small_queue)}/health"
            stack.enter_context(running(line, health, folder / name, environment))
        stack.enter_context(running(mlflow, f"http://127.0.0.1:{ports.mlflow}/ping", folder / "mlflow", environment))
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
    """All servers side by side, and the overload."""
    titles = ("", "requests/s", "times mlflow", "median, ms", "one client, ms", "cosine", "least", "top ten", "AO@10")
    table = Table(*titles, title=f"{found['clients']} clients, one text a request")
    table.add_row(
        "mlflow models serve",
        f"{found['requests_per_second_mlflow']:.1f}", "1.0", f"{found['p50_ms_mlflow']:.1f}",
        f"{found['p50_ms_alone_mlflow']:.1f}",
    )  # fmt: skip
    for precision, row in found["precisions"].items():
        table.add_row(
            f"cliptune serve, {precision}",
            f"{row['requests_per_second']:.1f}", f"{row['speedup_vs_mlflow_serve']:.2f}", f"{row['p50_ms']:.1f}",
            f"{row['p50_ms_alone']:.1f}", f"{row['cosine_mean']:.5f}", f"{row['cosine_least']:.5f}",
            f"{row['top_ten_overlap']:.3f}", row["ao"] or "no test data",
        )  # fmt: skip
    console.print(table)
    console.print(
        f"{OVERLOAD} times as many clients: "
        f"{found['overload_answered']} answered, {found['overload_refused']} refused, {found['overload_other']} else"
    )


def main(
    clients: Annotated[int, typer.Option(help="How many ask at the same time.")] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds of requests to each server in a round.")] = 10,
    rounds: Annotated[int, typer.Option(help="How often all get requests, in turn.")] = 3,
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
