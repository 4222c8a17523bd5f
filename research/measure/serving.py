"""How many requests per second does `cliptune serve` answer, and how many `mlflow models serve` with the same champion?

All servers, ours in each precision, run at the same time and get requests in turn, one text each, by clients in a
process of their own. Vectors are not kept between requests (`--cache 0`), although queries repeat. One client then
measures the latency of a single query. The champion is the one of this checkout: `make demo` first.

    python -m research.measure.serving
    python -m research.measure.serving --clients 8 --seconds 2 --rounds 1
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, get_args
from urllib.request import urlopen

import numpy as np
import numpy.typing as npt

from components.core.compute.metrics import average_overlap
from components.core.system.errors import InputError
from components.core.tracking import tracking_uri
from components.encoders.adapter.encoder import Encoder
from components.registry.encoder_lookup import find_encoder
from components.registry.export import ao_loss
from components.registry.model import CHAMPION
from research.measure.record import Found, Options, run
from research.measure.serving_client import Job, Outcome, run_job
from research.measure.training_data import captions

OPTIONS: Options = {
    "clients": (64, "how many request at the same time"),
    "seconds": (10.0, "of requests to each server in a round"),
    "rounds": (3, "how often all get requests, in turn"),
    "texts": (4000, "how many captions are drawn"),
}
NAME = f"text-encoder@{CHAMPION}"
Precision = Literal["fp32", "bf16", "int8"]
MLFLOW, PRECISIONS = "mlflow", get_args(Precision)
SIDES, WARM_UP_S, UP_WITHIN_S = (MLFLOW, *PRECISIONS), 1.0, 600.0
Known = dict[str, npt.NDArray[np.float32]]
"""Text -> the vector that every server must answer in float32."""


def measure(clients: int, seconds: float, rounds: int, texts: int) -> Found:
    """Send requests to all servers in turn.

    Raises:
        InputError: there is no champion, or a server does not start.
    """
    wanted, encoder = list(dict.fromkeys(captions(texts))), find_encoder(NAME).encoder
    known = dict(zip(wanted, encoder.embed_texts(wanted), strict=True))
    with (
        tempfile.TemporaryDirectory(prefix="serving-") as folder,
        servers(Path(folder)) as ports,
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
    ):

        def ask(side: str, count: int, during: float) -> Outcome:
            place = ("/invocations", "inputs") if side == MLFLOW else ("/v1/embeddings", "input")
            return pool.submit(run_job, Job(ports[side], *place, wanted, count, during)).result()

        for side in SIDES:
            ask(side, clients, WARM_UP_S)
        runs: dict[str, list[Outcome]] = {side: [] for side in SIDES}
        for _ in range(rounds):
            for side in SIDES:
                runs[side].append(ask(side, clients, seconds))
        alone = {side: ask(side, 1, seconds).median_ms for side in SIDES}
    return {
        "clients": clients,
        "texts": len(wanted),
        "sides": {side: speed(runs[side], runs[MLFLOW]) | {"ms_alone": alone[side]} for side in SIDES},
        "rounding": {one: rounding(one, known) for one in PRECISIONS},
        "largest_difference": {
            side: max(one.largest_difference(known) for one in runs[side]) for side in (MLFLOW, "fp32")
        },
    }


def speed(runs: Sequence[Outcome], mlflow: Sequence[Outcome]) -> Found:
    """A server's figures; medians over rounds."""
    return {
        "requests_per_second": statistics.median(one.rate for one in runs),
        "times_mlflow": statistics.median(one.rate / other.rate for one, other in zip(runs, mlflow, strict=True)),
        "ms": statistics.median(one.median_ms for one in runs),
        "not_answered": sum(one.lost + len(one.answers) - len(one.right) for one in runs),
    }


def rounding(precision: Precision, known: Known) -> Found:
    """The cost of a precision: in cosine to float32, in each text's ten nearest other texts, and in AO@10.

    `ao` is the change of paraphrased retrieval, None in a checkout without its test data.
    """
    encoder, champion = find_encoder(NAME, precision=precision).encoder, find_encoder(NAME).encoder
    assert isinstance(champion, Encoder), "promoted ones are"
    exact, rounded = np.stack(list(known.values())), encoder.embed_texts(list(known))
    cosines = (exact * rounded).sum(axis=1)
    before, after = (np.argsort(-(vectors @ exact.T), axis=1)[:, 1:11] for vectors in (exact, rounded))
    return {
        "cosine_mean": float(cosines.mean()),
        "cosine_least": float(cosines.min()),
        "top_ten_overlap": float(average_overlap(before, after, 10).mean()),
        "ao": ao_loss(champion, encoder.embed_texts),
    }


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, int]]:
    """The port of each server by side, all with the champion of the current folder's registry, up and answering."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in SIDES]
        ports = dict(zip(SIDES, (one.getsockname()[1] for one in held), strict=True))
    ours = [sys.executable, "-m", "components.cli", "serve", "--encoder", NAME, "--cache", "0"]
    lines = {one: [*ours, "--precision", one] for one in PRECISIONS}
    lines[MLFLOW] = [sys.executable, "-m", "mlflow", "models", "serve", "-m", f"models:/{NAME}"]
    lines[MLFLOW] += ["--env-manager", "local", "--host", "127.0.0.1"]
    with ExitStack() as stack:
        for side, line in lines.items():
            stack.enter_context(_running([*line, "--port", str(ports[side])], ports[side], folder / f"{side}.log"))
        yield ports


@contextmanager
def _running(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    """A server that answers; its whole process group ends with the block."""
    kind, _, place = tracking_uri().partition(":///")
    # mlflow starts its server in another folder.
    uri = f"{kind}:///{Path(place).resolve()}" if kind == "sqlite" else tracking_uri()
    environment = os.environ | {"MLFLOW_TRACKING_URI": uri, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=stream, stderr=stream)
    try:
        end = time.monotonic() + UP_WITHIN_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > end:
                raise InputError(f"{' '.join(command[1:])} does not answer: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.2)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    # Both have this address; URLError is an OSError.
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=30):
        return True
    return False


def rows(found: Found) -> Iterator[Sequence[object]]:
    """The table: a row for each server."""
    yield "", "requests/s", "times mlflow", "median, ms", "one client, ms", "cosine", "least", "top ten", "AO@10"
    for side, one in found["sides"].items():
        cost = found["rounding"].get(side, {})
        figures = [one[name] for name in ("requests_per_second", "times_mlflow", "ms", "ms_alone")]
        yield side, *figures, *(cost.get(name) for name in ("cosine_mean", "cosine_least", "top_ten_overlap", "ao"))


if __name__ == "__main__":
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    run("serving", __doc__, OPTIONS, measure, rows)
